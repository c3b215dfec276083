//! Tasks claimed ahead, under soft caps: at hand, so that one starts the moment another of its queue ends.
//!
//! Owns when one may start without asking the store: in the place of a task of its queue that ended here, and
//! if it has a key, of its key and at least its weight; in the first half of its lease. The store hears of it
//! with the next turn; what it has not heard of when the lease ends is stopped, for then somebody else may
//! have it.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use flowgate_core::{Tick, relied_on};
use foldhash::HashSet;
use tokio::time::Instant;

use crate::{
    store::{Claimed, Place},
    task::TaskId,
};

/// A place that a task left when it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    pub(super) of: TaskId,
    pub(super) place: Place,
    pub(super) weight: u32,
}

/// From when on a task must not begin, if it was claimed by a turn that was asked at this moment, when the store's time
/// was no later than `now`.
pub(super) fn begin_by(task: &Claimed, asked: Instant, now: Tick) -> Option<Instant> {
    task.good_until.map(|until| asked + until.since(now))
}

/// What a worker has at hand.
#[derive(Default)]
pub(super) struct Stock {
    spares: VecDeque<Spare>,
    /// What started and the store has not been told of.
    started: Vec<Claimed>,
    /// What started and is not known to be the worker's own.
    unsure: HashMap<TaskId, Unsure>,
}

struct Unsure {
    /// It may run until then.
    until: Instant,
    /// In whose place it started.
    of: TaskId,
}

struct Spare {
    task: Claimed,
    /// Not begun after this, as it was sent.
    good: Option<Instant>,
    /// Not started after this.
    start_by: Instant,
    /// Somebody else's from then on.
    until: Instant,
}

impl Stock {
    /// These were claimed ahead by a turn that was asked at this moment, when the store's time was no later than `now`.
    pub(super) fn add(&mut self, tasks: Vec<Claimed>, asked: Instant, now: Tick, lease: Duration) {
        for task in tasks {
            let good = begin_by(&task, asked, now);
            let half = asked + lease / 2;
            let start_by = good.map_or(half, |good| half.min(good));
            self.spares.push_back(Spare { task, good, start_by, until: asked + relied_on(lease) });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.spares.len()
    }

    /// The next one that may start in the place of a task that ended, which starts now, and by when it has to begin: of
    /// the same key, or else without one. Of a key only the first: nothing overtakes it.
    pub(super) fn start_one(&mut self, ended: &Vacancy, now: Instant) -> Option<(Claimed, Option<Instant>)> {
        let is_of = |spare: &Spare, key: Option<i64>| {
            spare.task.place.queue == ended.place.queue && spare.task.place.key == key
        };
        let may_start = |spare: &Spare| now < spare.start_by;
        let same =
            ended.place.key.and_then(|key| self.spares.iter().position(|spare| is_of(spare, Some(key))));
        let same =
            same.filter(|&at| may_start(&self.spares[at]) && self.spares[at].task.weight <= ended.weight);
        let at =
            same.or_else(|| self.spares.iter().position(|spare| is_of(spare, None) && may_start(spare)))?;
        let Spare { task, good, until, .. } = self.spares.remove(at)?;
        self.unsure.insert(task.id, Unsure { until, of: ended.of });
        self.started.push(task.clone());
        Some((task, good))
    }

    /// What the store has to be told of: all but what started in the place of these, of whose end the store does not hear yet.
    pub(super) fn take_started(&mut self, left: &HashSet<TaskId>) -> Vec<Claimed> {
        let started = std::mem::take(&mut self.started);
        if left.is_empty() {
            return started;
        }
        let waits =
            |task: &Claimed| self.unsure.get(&task.id).is_some_and(|unsure| left.contains(&unsure.of));
        let (waiting, told) = started.into_iter().partition(waits);
        self.started = waiting;
        told
    }

    /// The store may not have heard of these. What was doubtful meanwhile runs no more.
    pub(super) fn put_back(&mut self, started: Vec<Claimed>) {
        self.started.extend(started.into_iter().filter(|task| self.unsure.contains_key(&task.id)));
    }

    /// The store has heard of these. Whether one of them was doubtful meanwhile: then the store has it for the
    /// worker's, and nobody runs it.
    pub(super) fn told(&mut self, started: &[Claimed]) -> bool {
        let gone = started.iter().filter(|task| self.unsure.remove(&task.id).is_none());
        gone.count() > 0
    }

    /// When there is something to do, whatever happens.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.spares
            .iter()
            .map(|spare| spare.start_by)
            .chain(self.unsure.values().map(|unsure| unsure.until))
            .min()
    }

    /// What is too late to start.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Claimed> {
        let (late, fresh) = self.spares.drain(..).partition(|spare| spare.start_by <= now);
        self.spares = fresh;
        let late: VecDeque<Spare> = late;
        late.into_iter().map(|spare| spare.task).collect()
    }

    /// What runs, and may be somebody else's by now.
    pub(super) fn take_doubtful(&mut self, now: Instant) -> Vec<TaskId> {
        let doubtful: Vec<TaskId> =
            self.unsure.iter().filter(|(_, unsure)| unsure.until <= now).map(|(id, _)| *id).collect();
        for id in &doubtful {
            self.unsure.remove(id);
        }
        self.started.retain(|task| !doubtful.contains(&task.id));
        doubtful
    }

    /// All without a key that have not started.
    pub(super) fn take_plain(&mut self) -> Vec<Claimed> {
        self.take_if(|task| task.place.key.is_none())
    }

    /// All of this key that have not started.
    pub(super) fn take_key(&mut self, key: i64) -> Vec<Claimed> {
        self.take_if(|task| task.place.key == Some(key))
    }

    fn take_if(&mut self, is_wanted: impl Fn(&Claimed) -> bool) -> Vec<Claimed> {
        let (taken, left): (VecDeque<Spare>, _) =
            self.spares.drain(..).partition(|spare| is_wanted(&spare.task));
        self.spares = left;
        taken.into_iter().map(|spare| spare.task).collect()
    }

    /// Everything that has not started.
    pub(super) fn take_all(&mut self) -> Vec<Claimed> {
        self.spares.drain(..).map(|spare| spare.task).collect()
    }

    /// One that has not started.
    pub(super) fn take(&mut self, id: TaskId) -> Option<Claimed> {
        let at = self.spares.iter().position(|spare| spare.task.id == id)?;
        self.spares.remove(at).map(|spare| spare.task)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> {
        self.spares.iter().map(|spare| spare.task.id)
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = i64> {
        self.spares.iter().map(|spare| spare.task.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::clock;

    const LEASE: Duration = Duration::from_secs(4);

    fn left(queue: i64, key: Option<i64>, weight: u32) -> Vacancy {
        Vacancy { of: TaskId(1), place: Place { lane: 1, queue, key }, weight }
    }

    fn claimed(id: i64, queue: i64, good_until: Option<Tick>) -> Claimed {
        let place = Place { lane: 1, queue, key: None };
        Claimed {
            id: TaskId(id),
            lease: id,
            attempt: 1,
            weight: 1,
            good_until,
            record: bytes::Bytes::new(),
            place,
        }
    }

    /// A stock of one task, and when it was asked for.
    fn stock(good_until: Option<Tick>) -> (Stock, Instant) {
        let (mut stock, asked) = (Stock::default(), clock::now());
        stock.add(vec![claimed(7, 1, good_until)], asked, Tick::from_nanos(1_000), LEASE);
        (stock, asked)
    }

    // Seen to fail: without the comparison of queues the first one started; with the whole lease for the half, the third did.
    #[tokio::test]
    async fn t1_one_starts_in_its_own_queue_in_the_first_half_of_its_lease() {
        let (mut stock, asked) = stock(None);
        assert!(stock.start_one(&left(2, None, 1), asked).is_none(), "another queue");
        assert!(stock.start_one(&left(1, None, 1), asked + LEASE / 4).is_some());
        let (mut stock, asked) = self::stock(None);
        assert!(stock.start_one(&left(1, None, 1), asked + LEASE / 2).is_none(), "too late");
        assert_eq!(stock.take_late(asked + LEASE / 2).len(), 1, "it goes back");
        assert_eq!(stock.len(), 0);
    }

    // Seen to fail: with `good_until` left out of `start_by`, it started.
    #[tokio::test]
    async fn t6_one_whose_time_is_over_does_not_start() {
        let soon = Tick::from_nanos(1_000).after(Duration::from_secs(1));
        let (mut stock, asked) = stock(Some(soon));
        assert!(stock.start_one(&left(1, None, 1), asked + Duration::from_secs(1)).is_none());
    }

    // Seen to fail: with `told` left out, a run that the store knows of was doubtful; with nothing noted at a start, none was.
    #[tokio::test]
    async fn t1_a_run_the_store_has_not_heard_of_ends_with_its_lease() {
        let (mut stock, asked) = stock(None);
        stock.start_one(&left(1, None, 1), asked).expect("it starts");
        assert_eq!(
            stock.next_moment(),
            Some(asked + relied_on(LEASE)),
            "a little before the store gives it away"
        );
        assert_eq!(stock.take_doubtful(asked + LEASE / 2), []);
        assert_eq!(stock.take_doubtful(asked + LEASE), [TaskId(7)]);
        assert_eq!(stock.take_started(&HashSet::default()).len(), 0, "it is told to nobody any more");

        let (mut stock, asked) = self::stock(None);
        stock.start_one(&left(1, None, 1), asked).expect("it starts");
        let started = stock.take_started(&HashSet::default());
        assert!(!stock.told(&started));
        assert_eq!(stock.take_doubtful(asked + LEASE), []);
    }

    // Seen to fail: with `put_back` taking all of them, it was told again.
    #[tokio::test]
    async fn t1_a_run_that_was_stopped_while_the_store_was_told_is_known_as_such() {
        let (mut stock, asked) = stock(None);
        stock.start_one(&left(1, None, 1), asked).expect("it starts");
        let started = stock.take_started(&HashSet::default());
        assert_eq!(stock.take_doubtful(asked + LEASE), [TaskId(7)]);
        assert!(stock.told(&started));
        stock.put_back(started);
        assert_eq!(stock.take_started(&HashSet::default()).len(), 0);
    }

    // Seen to fail: without the comparison of keys, it started for another key; without that of weights, in the place
    // of a lighter one; with any of the key for the first, the light one overtook the heavy one.
    #[tokio::test]
    async fn t1_one_with_a_key_starts_in_the_place_of_one_of_its_key_and_weight() {
        let (mut stock, asked) = (Stock::default(), clock::now());
        let of_key = |id: i64, weight: u32| {
            let task = claimed(id, 1, None);
            Claimed { weight, place: Place { key: Some(5), ..task.place }, ..task }
        };
        stock.add(vec![of_key(7, 2), of_key(8, 1), claimed(9, 1, None)], asked, Tick::ZERO, LEASE);
        assert!(stock.start_one(&left(2, Some(5), 2), asked).is_none(), "another queue");
        let id = |started: Option<(Claimed, Option<Instant>)>| started.map(|(task, _)| task.id);
        assert_eq!(
            id(stock.start_one(&left(1, Some(6), 2), asked)),
            Some(TaskId(9)),
            "the one without a key"
        );
        assert!(stock.start_one(&left(1, Some(6), 2), asked).is_none(), "another key");
        assert!(
            stock.start_one(&left(1, Some(5), 1), asked).is_none(),
            "too heavy, and nothing overtakes it"
        );
        assert_eq!(id(stock.start_one(&left(1, Some(5), 2), asked)), Some(TaskId(7)));
        assert_eq!(stock.take_plain().len(), 0);
        assert_eq!(stock.take_key(5).len(), 1);
    }
}
