//! Which lanes may start how many tasks: the one claim rule of every store.
//!
//! Owns the order of service and the division of free slots: queue priority, task priority, then fair shares between the
//! lanes of one rank. Each lane is asked by `flowgate-core`'s own rule. It reads no clock and no store: a store fills a
//! [`Scene`] inside its claim transaction, asks for the [`Plan`], takes the tasks, and books what it took.

use std::time::Duration;

use flowgate_core::{Hold, Lane, Limits, RateLook, Tick};

use crate::{
    ledger::Ledger,
    store::Under,
    terms::{self, KeyTerms},
};

/// The row of a queue.
pub(crate) type QueueId = i64;
/// The row of a key.
pub(crate) type KeyId = i64;
/// The row of a lane: a queue, a key, a priority and the limits that tasks were sent with.
pub(crate) type LaneId = i64;

/// As many slots of a key may be in use without a max: as the stores can count.
const MOST_IN_USE: u32 = i32::MAX as u32;

/// After so long a lane is looked at again whose limits could not be read: somebody may have mended them, and a newer version in
/// the same fleet may read them.
const UNREAD_FOR: Duration = Duration::from_secs(15);

/// A count with a cap over it: of a queue, or of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    /// How many may be out. `None`: nothing is counted.
    pub(crate) cap: Option<u32>,
    /// How many are out, after what this turn gave back.
    pub(crate) in_use: u32,
    /// How many this turn gave back, which nobody else can have taken.
    pub(crate) freed: u32,
    /// Whether nobody else can take what is free while this turn lasts.
    pub(crate) is_locked: bool,
    /// How many this turn took.
    pub(crate) taken: u32,
}

impl Counter {
    /// What this turn may still take, and whether there may be more for one that locks the counter.
    fn room(&self) -> (u32, bool) {
        let Some(cap) = self.cap else { return (u32::MAX, false) };
        let free = cap.saturating_sub(self.in_use + self.taken);
        let sure = if self.is_locked { free } else { free.min(self.freed.saturating_sub(self.taken)) };
        (sure, sure < free)
    }

    /// Whether it was full before this turn, and is not now.
    pub(crate) fn leaves_full(&self) -> bool {
        let is_full = |in_use: u32| self.cap.is_some_and(|cap| in_use >= cap);
        is_full(self.in_use + self.freed) && !is_full(self.in_use + self.taken)
    }

    /// By how much the stored count changes.
    pub(crate) fn change(&self) -> i64 {
        i64::from(self.taken) - i64::from(self.freed)
    }
}

/// A queue as a turn sees it.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) priority: i32,
    pub(crate) is_paused: bool,
    pub(crate) counter: Counter,
    /// How many this worker may still claim here in this turn.
    pub(crate) quota: u32,
}

/// A key as a turn sees it, locked against all other turns.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) id: KeyId,
    pub(crate) in_use: u32,
    pub(crate) is_paused: bool,
    pub(crate) pinned: Option<Limits>,
    /// The newest limits sent, where these govern all that wait.
    pub(crate) latest: Option<Limits>,
    pub(crate) ledger: Ledger,
    /// Limits of it that cannot be read: nothing of it starts.
    pub(crate) unread: Option<String>,
}

impl Key {
    /// A key as its row has it.
    pub(crate) fn read(
        id: KeyId,
        in_use: u32,
        is_paused: bool,
        (pinned, sent, is_latest): (Option<&str>, &str, bool),
        rates: &str,
    ) -> Self {
        let KeyTerms { pinned, sent, unread } = KeyTerms::read(pinned, sent, is_latest);
        let (latest, ledger) = (sent.filter(|_| is_latest), Ledger::read(rates));
        Key { id, in_use, is_paused, pinned, latest, ledger, unread }
    }

    /// The limits that hold for a task sent with `own`.
    pub(crate) fn in_force(&self, own: Option<Limits>) -> Option<Limits> {
        terms::in_force(self.pinned, self.latest.or(own))
    }

    fn hold(&self, limits: Option<&Limits>, now: Tick) -> Option<Hold> {
        self.hold_weight(limits, 1, now)
    }

    /// What holds back one of this weight.
    fn hold_weight(&self, limits: Option<&Limits>, weight: u32, now: Tick) -> Option<Hold> {
        if self.is_paused {
            return Some(Hold::Paused);
        }
        if self.unread.is_some() {
            return Some(unread(now));
        }
        if let Some(until) = self.ledger.resting(now) {
            return Some(Hold::Rate { until });
        }
        let limits = limits?;
        let spent = limits.rate().map(|rate| self.ledger.spent(rate, now)).unwrap_or_default();
        Lane::with_counts(self.in_use, spent).hold(limits, weight, now)
    }

    /// What it says to one of this weight in a lane with these limits.
    pub(crate) fn holding(&self, limits: &str, weight: u32, now: Tick) -> Under {
        let lane = Candidate::read(0, 0, Some(0), 0, limits);
        let in_force = self.in_force(lane.own);
        Under {
            in_force,
            hold: self.hold_weight(in_force.as_ref(), weight, now),
            resting: self.ledger.resting(now),
            in_use: self.in_use,
            rate: self.rate_left(in_force.as_ref(), now),
            unread: lane.unread(self).map(str::to_owned),
        }
    }

    /// What is left of the rate in these limits.
    fn rate_left(&self, limits: Option<&Limits>, now: Tick) -> Option<RateLook> {
        let rate = limits?.rate()?;
        Some(rate.look(self.ledger.spent(rate, now), now))
    }

    fn start(&mut self, limits: Option<&Limits>, weight: u32, now: Tick) {
        self.in_use += weight;
        self.ledger.start(limits.and_then(Limits::rate), now);
    }
}

/// A lane with something in it, perhaps.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: LaneId,
    pub(crate) queue: QueueId,
    /// Its key's place in [`Scene::keys`].
    pub(crate) key: Option<usize>,
    pub(crate) priority: i16,
    pub(crate) own: Option<Limits>,
    /// Its limits, where they cannot be read: nothing of it starts, unless its key's newest govern, or what is pinned.
    pub(crate) unread: Option<String>,
}

impl Candidate {
    /// A lane whose limits are this text. They are those of its key: without one they hold nothing.
    pub(crate) fn read(id: LaneId, queue: QueueId, key: Option<usize>, priority: i16, limits: &str) -> Self {
        let (own, unread) = if key.is_some() { terms::read(limits) } else { (None, None) };
        Candidate { id, queue, key, priority, own, unread }
    }

    /// What is unreadable of the limits in force for it.
    pub(crate) fn unread<'a>(&'a self, key: &'a Key) -> Option<&'a str> {
        let own = self.unread.as_deref().filter(|_| key.latest.is_none() && !terms::is_whole(key.pinned));
        key.unread.as_deref().or(own)
    }
}

fn unread(now: Tick) -> Hold {
    Hold::Rate { until: now.after(UNREAD_FOR) }
}

/// Everything a turn knows when it decides.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) now: Tick,
    /// How many more tasks the worker can run.
    pub(crate) budget: u32,
    pub(crate) cluster: Counter,
    pub(crate) queues: Vec<Queue>,
    pub(crate) keys: Vec<Key>,
    /// Lanes in the order in which they would be served: a rotation, so that no lane is always the first.
    pub(crate) lanes: Vec<Candidate>,
}

/// What is said of a lane, so that a turn looks only at those that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// To be looked at.
    Ready,
    /// Its key is full or paused: until something of the key comes back or changes.
    Held,
    /// Its key's rate is spent until then, or its key rests.
    Until(Tick),
}

/// What a lane may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Its place in [`Scene::lanes`].
    pub(crate) lane: usize,
    /// At most so many tasks.
    pub(crate) count: u32,
    /// At most this weight in all.
    pub(crate) room: u32,
}

/// The outcome.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) grants: Vec<Grant>,
    /// Lanes that hold nothing to look at until something changes.
    pub(crate) held: Vec<(usize, LaneState)>,
    /// Whether a turn that locks the counters might give more. Of what is free something is left for it.
    pub(crate) wants_locks: bool,
    /// Whether lanes were left out for this turn only, so that another one should look at them.
    pub(crate) has_more: bool,
    /// Whether lanes got nothing because others were granted all that is free: they may, if those do not take it.
    pub(crate) passed_over: bool,
    /// Whether all that is free was granted.
    pub(crate) is_spent: bool,
}

impl Scene {
    /// Divides what is free. Changes nothing yet: what was really taken is booked with [`Scene::book`].
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        let mut draft = Draft::new(self);
        let mut order: Vec<(i32, i16, usize)> = (0..self.lanes.len())
            .filter_map(|index| {
                let lane = &self.lanes[index];
                let queue = self.queue(lane.queue).filter(|queue| !queue.is_paused)?;
                Some((queue.priority, lane.priority, index))
            })
            .collect();
        order.sort_by_key(|&(queue, lane, _)| (queue, lane));
        let mut rest = order.as_slice();
        while let Some(&(queue, lane, _)) = rest.first() {
            let end = rest.iter().position(|&(q, l, _)| (q, l) != (queue, lane)).unwrap_or(rest.len());
            let (rank, lower) = rest.split_at(end);
            let mut hungry: Vec<usize> = rank.iter().map(|&(_, _, index)| index).collect();
            // What some cannot take goes to the others of their rank before it goes to a lower one.
            while draft.budget > 0 && !hungry.is_empty() {
                let mut left = hungry.len() as u32 + 1;
                hungry.retain(|&index| {
                    left -= 1;
                    draft.serve(index, left, &mut plan)
                });
            }
            plan.is_spent = draft.budget == 0 && draft.kept == 0;
            plan.passed_over |= plan.is_spent && !lower.is_empty();
            // What a lock, or another lane of a key that was served, could give to this rank must not go to a lower one.
            if plan.wants_locks || draft.has_skipped {
                plan.has_more = true;
                break;
            }
            rest = lower;
        }
        plan
    }

    /// Books tasks of these weights, which were taken for a grant: in the cluster, the queue and the key.
    pub(crate) fn book(&mut self, grant: Grant, weights: &[u32]) {
        let lane = &self.lanes[grant.lane];
        let count = weights.len() as u32;
        self.cluster.taken += count;
        self.budget = self.budget.saturating_sub(count);
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.id == lane.queue) {
            queue.counter.taken += count;
        }
        if let Some(key) = lane.key.map(|index| &mut self.keys[index]) {
            let limits = key.in_force(lane.own);
            for &weight in weights {
                key.start(limits.as_ref(), weight, self.now);
            }
        }
    }

    /// What is to be said of a lane when the turn is over.
    pub(crate) fn state_of(&self, lane: &Candidate) -> LaneState {
        let Some(key) = lane.key.map(|index| &self.keys[index]) else { return LaneState::Ready };
        let hold = || key.hold(key.in_force(lane.own).as_ref(), self.now);
        match lane.unread(key).map(|_| unread(self.now)).or_else(hold) {
            None => LaneState::Ready,
            Some(Hold::Rate { until }) => LaneState::Until(until),
            Some(_) => LaneState::Held,
        }
    }

    /// Lanes of which tasks may be claimed ahead, to start in the place of others of their key: the key is full, not
    /// beyond a max that was lowered, and nothing but its max holds it, now or, by any limits known, then; and no other
    /// lane of it is in sight that would come first.
    pub(crate) fn full_lanes(&self) -> impl Iterator<Item = &Candidate> {
        let mut lanes = vec![0; self.keys.len()];
        self.lanes.iter().filter_map(|lane| lane.key).for_each(|key| lanes[key] += 1);
        let is_full = move |lane: &&Candidate| {
            let Some(index) = lane.key else { return false };
            let key = &self.keys[index];
            let has_rate = |limits: Option<Limits>| limits.is_some_and(|limits| limits.rate().is_some());
            let limits = key.in_force(lane.own);
            let is_beyond = limits.and_then(|limits| limits.max()).is_some_and(|max| key.in_use > max);
            !key.is_paused
                && lane.unread(key).is_none()
                && !is_beyond
                && !has_rate(limits)
                && !has_rate(lane.own)
                && key.ledger == Ledger::default()
                && key.hold(limits.as_ref(), self.now).is_some()
                && lanes[index] == 1
        };
        self.lanes.iter().filter(is_full)
    }

    /// What cannot be read of the limits in sight: keys, and the texts.
    pub(crate) fn unread(&self) -> Vec<(KeyId, String)> {
        let of = |lane: &Candidate| {
            let key = &self.keys[lane.key?];
            Some((key.id, lane.unread(key)?.to_owned()))
        };
        let mut unread: Vec<(KeyId, String)> = self.lanes.iter().filter_map(of).collect();
        unread.sort_unstable();
        unread.dedup();
        unread
    }

    fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.id == id)
    }
}

/// What would be free after the grants made so far.
struct Draft<'a> {
    scene: &'a Scene,
    budget: u32,
    /// What a lock might give, and nobody else gets: the turn that locks needs a slot.
    kept: u32,
    cluster: Counter,
    queues: Vec<Queue>,
    /// Keys of which a lane was served, or may yet be before any other.
    served_keys: Vec<bool>,
    /// The grant of each lane, in the plan.
    granted: Vec<Option<usize>>,
    /// Whether a lane was left out because another one of its key was served.
    has_skipped: bool,
}

impl<'a> Draft<'a> {
    fn new(scene: &'a Scene) -> Self {
        Draft {
            scene,
            budget: scene.budget,
            kept: 0,
            cluster: scene.cluster,
            queues: scene.queues.clone(),
            served_keys: vec![false; scene.keys.len()],
            granted: vec![None; scene.lanes.len()],
            has_skipped: false,
        }
    }

    /// Gives the lane its share, or another one: what is left of the budget, divided by how many are left in its rank. What a
    /// lock might add to that is kept for the turn that locks. Whether it could take more.
    fn serve(&mut self, index: usize, left_in_rank: u32, plan: &mut Plan) -> bool {
        let lane = &self.scene.lanes[index];
        let position = self.queues.iter().position(|queue| queue.id == lane.queue);
        let position = position.expect("lanes of unknown queues were left out");
        let queue = &self.queues[position];
        let (cluster_room, cluster_more) = self.cluster.room();
        let (queue_room, queue_more) = queue.counter.room();
        let wanted = self.budget.div_ceil(left_in_rank).min(queue.quota);
        let share = wanted.min(cluster_room).min(queue_room);
        if share < wanted && (cluster_room > share || cluster_more) && (queue_room > share || queue_more) {
            plan.wants_locks = true;
            self.kept += wanted - share;
            self.budget -= wanted - share;
        }
        if share == 0 {
            plan.passed_over = true;
            self.keep_key(lane, position);
            return false;
        }
        plan.has_more |= share == queue.quota;
        let before = self.granted[index];
        let had = before.map_or(0, |at| plan.grants[at].count);
        let grant = match lane.key {
            None => Grant { lane: index, count: had + share, room: u32::MAX },
            // One lane of a key to a turn: what it really takes decides what the next one may.
            Some(key) if self.served_keys[key] && before.is_none() => {
                self.has_skipped = true;
                return false;
            }
            Some(key) => match self.keyed(index, key, had + share) {
                Ok(grant) => {
                    self.served_keys[key] = true;
                    grant
                }
                Err(held) => {
                    plan.held.push((index, held));
                    return false;
                }
            },
        };
        let more = grant.count - had;
        self.budget -= more;
        self.cluster.taken += more;
        self.queues[position].counter.taken += more;
        self.queues[position].quota -= more;
        match before {
            Some(at) => plan.grants[at] = grant,
            None => {
                self.granted[index] = Some(plan.grants.len());
                plan.grants.push(grant);
            }
        }
        more == share
    }

    /// A lane got nothing because others of its queue were granted all that was free there. They may not have as many tasks,
    /// and then it is next: until that is known, what its key has left is not for lower ranks.
    fn keep_key(&mut self, lane: &Candidate, queue: usize) {
        let before = &self.scene.queues[queue];
        let was_open = before.quota > 0 && before.counter.room().0 > 0;
        if let Some(key) = lane.key.filter(|_| was_open) {
            self.served_keys[key] = true;
        }
    }

    fn keyed(&self, index: usize, key: usize, share: u32) -> Result<Grant, LaneState> {
        let (mut key, lane) = (self.scene.keys[key].clone(), &self.scene.lanes[index]);
        if lane.unread(&key).is_some() {
            return Err(self.scene.state_of(lane));
        }
        let limits = key.in_force(lane.own);
        let max = limits.and_then(|limits| limits.max());
        let room = max.unwrap_or(MOST_IN_USE).saturating_sub(key.in_use);
        if max.is_none() && room == 0 {
            return Err(LaneState::Held);
        }
        let share = if max.is_none() { share.min(room) } else { share };
        let mut count = 0;
        while count < share {
            match key.hold(limits.as_ref(), self.scene.now) {
                None => key.start(limits.as_ref(), 1, self.scene.now),
                Some(_) if count > 0 => break,
                Some(Hold::Rate { until }) => return Err(LaneState::Until(until)),
                Some(_) => return Err(LaneState::Held),
            }
            count += 1;
        }
        Ok(Grant { lane: index, count, room })
    }
}

#[cfg(test)]
mod tests;
