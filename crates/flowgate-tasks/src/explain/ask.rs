//! Asking the store.
//!
//! Owns the order in which limits are looked at: what holds a task whatever else changes comes first.

use std::{collections::HashMap, time::Duration};

use flowgate_core::Hold;

use super::{
    answer::{Explanation, Fact, Limit, Running, Serving, Spot},
    estimate::{Estimate, millis},
    subject::Subject,
    times::{ServiceTimes, Unrecorded},
    words,
};
use crate::{
    SERVER_QUEUE,
    store::{
        Holder, MOST_COUNTED as MOST_IN_LINE, Of, QueueLook, Standing, State, Store, StoreError, TaskLook,
        WorkerLook,
    },
    task::TaskId,
};

/// So many holders are worth a line each.
const MOST: u32 = 20;
/// From so many of them an estimate is made.
const MOST_COUNTED: u32 = 1000;

/// Why this waits, or what became of it. `None`: the store does not know it.
pub async fn explain(store: &dyn Store, subject: &Subject) -> Result<Option<Explanation>, StoreError> {
    explain_with(store, subject, &Unrecorded).await
}

/// The same, with a record of how long work took: when it should start is told from that.
pub async fn explain_with(
    store: &dyn Store,
    subject: &Subject,
    times: &dyn ServiceTimes,
) -> Result<Option<Explanation>, StoreError> {
    // A line is counted for whoever asks about the queue; for others its limits are enough.
    let counted = if matches!(subject, Subject::Queue(_)) { MOST_IN_LINE } else { 0 };
    let scene = Scene::load(store, times, counted).await?;
    match subject {
        Subject::Task(id) => scene.task(*id).await,
        Subject::Key(key) => scene.key(key).await,
        Subject::Queue(queue) => scene.queue(queue).await,
    }
}

/// What the store says as a whole.
struct Scene<'a> {
    store: &'a dyn Store,
    times: &'a dyn ServiceTimes,
    queues: Vec<QueueLook>,
    cluster: (u32, Option<u32>),
    workers: Vec<WorkerLook>,
}

impl<'a> Scene<'a> {
    async fn load(
        store: &'a dyn Store,
        times: &'a dyn ServiceTimes,
        counted: u32,
    ) -> Result<Self, StoreError> {
        let (queues, cluster) = (store.queues_counted(counted).await?, store.cluster().await?);
        Ok(Scene { store, times, queues, cluster, workers: store.workers().await? })
    }

    async fn task(&self, id: TaskId) -> Result<Option<Explanation>, StoreError> {
        let Some(look) = self.store.look_at_task(id).await? else { return Ok(None) };
        let standing = self.store.standing(id).await?;
        let mut told = Explanation {
            subject: Subject::Task(id).to_string(),
            facts: facts(&look, standing.as_ref()),
            workers: self.serving(&look.queue),
            ..Explanation::empty()
        };
        match (&look.state, standing) {
            (State::Waiting { .. } | State::Delayed { .. }, Some(standing)) => {
                self.waits(&look, &standing, &mut told).await?;
            }
            (State::Held { worker, is_at_hand: true, .. }, _) => {
                let name = self.names().remove(&worker.0);
                told.verdict = words::at_hand(name.as_deref(), look.key.as_deref());
            }
            (State::Held { worker, .. }, _) => {
                told.holders = self.running(self.store.holders(Of::Task(id), 1).await?);
                let name = self.names().remove(&worker.0);
                told.verdict = words::held(name.as_deref(), told.holders.first().map(|holder| holder.for_ms));
            }
            (State::Done { .. }, _) => told.verdict = "it is done".to_owned(),
            (State::Dead { reason, error }, _) => {
                told.verdict = words::dead(reason, error, look.attempt);
                told.help.push(self.times.revived(&look));
            }
            // It went on while it was looked at.
            (State::Waiting { .. } | State::Delayed { .. }, None) => {
                told.verdict = "it has just started or ended: ask again".to_owned();
            }
        }
        Ok(Some(told))
    }

    /// A task that nobody holds.
    async fn waits(
        &self,
        look: &TaskLook,
        standing: &Standing,
        told: &mut Explanation,
    ) -> Result<(), StoreError> {
        let ahead_in_key = look.key.as_ref().map(|_| standing.ahead_in_key);
        let ahead_in_queue = standing.ahead_in_queue;
        let ahead_in_other_queues = self.elsewhere(look, standing);
        told.place = Some(Spot { ahead_in_key, ahead_in_queue, ahead_in_other_queues });
        if let Some(expired) = expired(look, standing) {
            (told.verdict, told.help) = (words::reason(&expired), words::help(&expired, self.times, false));
            told.held_by = vec![expired];
            return Ok(());
        }
        told.held_by = self.limits(look, standing);
        if let Some(head) = self.head(look, standing).await? {
            told.held_by.insert(0, head);
        }
        // Whoever holds the slots says more than that nobody is there to use them.
        let is_held = |limit: &&Limit| !matches!(limit, Limit::NoWorker { .. });
        let of = match told.held_by.iter().find(is_held).or(told.held_by.first()) {
            Some(
                Limit::KeyMax { key, .. }
                | Limit::KeyHead { key, .. }
                | Limit::KeyRate { key, .. }
                | Limit::KeyRests { key, .. }
                | Limit::KeyUnread { key, .. }
                | Limit::KeyPaused { key },
            ) => Of::Key(key.clone()),
            Some(
                Limit::QueueMax { queue, .. } | Limit::QueuePaused { queue } | Limit::NoWorker { queue },
            ) => Of::Queue(queue.clone()),
            _ => Of::All,
        };
        told.holders = self.running(self.store.holders(of.clone(), MOST_COUNTED).await?);
        told.estimate = self.estimate(of, standing, told).await?.and_then(|mut estimate| {
            // Whatever else holds it is over when somebody ends it, and by then the moment may be long past.
            estimate.is_exact &= told.held_by.len() == 1;
            (!told.held_by.iter().any(Limit::is_open)).then_some(estimate)
        });
        told.holders.truncate(MOST as usize);
        told.help = self.help(&told.held_by, look.queue == SERVER_QUEUE);
        told.help.extend(words::orphans(&told.holders, !self.workers.is_empty()));
        told.help.extend(words::uneven(&told.workers, &told.held_by));
        let expires = standing.good_until.map(|until| millis(until.since(standing.now)));
        told.verdict = words::verdict(&told.held_by, told.place, told.estimate.as_ref(), expires);
        Ok(())
    }

    /// The first in the line of its key, if that is what it waits behind: the key has a free slot, and that one wants more.
    async fn head(&self, look: &TaskLook, standing: &Standing) -> Result<Option<Limit>, StoreError> {
        let is_free = standing.under.hold.is_none() && standing.under.unread.is_none();
        let Some(key) = look.key.clone().filter(|_| is_free && standing.ahead_in_key > 0) else {
            return Ok(None);
        };
        let Some(first) = self.store.line(Of::Key(key.clone()), 1).await?.pop() else { return Ok(None) };
        let Some(its) = self.store.standing(first.id).await? else { return Ok(None) };
        let is_before = first.id != look.id && first.queue == look.queue && first.priority == look.priority;
        let max = its.under.in_force.and_then(|limits| limits.max());
        Ok(max.filter(|_| is_before && its.under.hold == Some(Hold::Slots)).map(|max| Limit::KeyHead {
            key,
            task: first.id.0,
            in_use: its.under.in_use,
            max,
            weight: its.weight,
        }))
    }

    /// What would free it. Where nobody runs it, room made by hand frees nothing: what runs elsewhere would end by itself.
    fn help(&self, limits: &[Limit], is_of_server: bool) -> Vec<String> {
        let is_unserved = limits.iter().any(|limit| matches!(limit, Limit::NoWorker { .. }));
        let is_worth_it = |limit: &&Limit| !is_unserved || limit.is_open();
        limits
            .iter()
            .filter(is_worth_it)
            .flat_map(|limit| words::help(limit, self.times, is_of_server))
            .collect()
    }

    /// How many in other queues are served before it: those that are ready, as far as their queue has room, where a cap
    /// over all queues or a worker is shared.
    fn elsewhere(&self, look: &TaskLook, standing: &Standing) -> u64 {
        let own = self.serving(&look.queue);
        let is_shared = |queue: &str| {
            let shares = |worker: &Serving| own.iter().any(|own| own.id == worker.id);
            self.cluster.1.is_some() || self.serving(queue).iter().any(shares)
        };
        let first = standing.ahead_elsewhere.iter().filter(|other| is_shared(&other.queue));
        let counted = first.map(|other| {
            let queue = self.queues.iter().find(|queue| queue.limits.name == other.queue);
            let room = queue.and_then(|queue| Some(queue.limits.max?.saturating_sub(queue.in_use)));
            other.ready.min(room.map_or(u64::MAX, u64::from))
        });
        counted.sum()
    }

    /// When it should start: by the rate, by the slots, or by whichever of the two is later.
    async fn estimate(
        &self,
        of: Of,
        standing: &Standing,
        told: &Explanation,
    ) -> Result<Option<Estimate>, StoreError> {
        let (of_key, of_queue) = (standing.ahead_in_key, standing.ahead_in_queue);
        let elsewhere = told.place.map_or(0, |place| place.ahead_in_other_queues);
        let limits = standing.under.in_force.as_ref();
        let rate = |wait: u64| {
            let rate = limits.and_then(|limits| limits.rate().copied())?;
            Some(Estimate::by_rate(Duration::from_millis(wait), &rate, of_key))
        };
        Ok(match told.held_by.first() {
            None => None,
            Some(Limit::Delay { for_ms }) => {
                let is_exact = of_key == 0 && of_queue == 0 && elsewhere == 0;
                Some(Estimate { is_exact, ..Estimate::at(*for_ms, "that is when it joins its line") })
            }
            Some(Limit::KeyRests { for_ms, .. }) => {
                (of_key == 0).then(|| Estimate::at(*for_ms, "its key rests until then at the latest"))
            }
            Some(Limit::KeyRate { for_ms, .. }) => {
                let by_slots = match limits.and_then(|limits| limits.max()) {
                    // Nobody waits for a slot yet; those before it will.
                    Some(max) if of_key > 0 => self.by_service(of, &told.holders, max, of_key).await?,
                    _ => None,
                };
                rate(*for_ms).map(|by_rate| by_rate.and(by_slots))
            }
            Some(Limit::KeyMax { max, .. }) => {
                let by_slots = self.by_service(of, &told.holders, *max, of_key).await?;
                let rate = limits.and_then(|limits| limits.rate().copied());
                let by_rate = rate
                    .zip(standing.under.rate)
                    .and_then(|(rate, left)| Estimate::by_what_is_left(&rate, left, standing.now, of_key));
                by_slots.map(|by_slots| by_slots.and(by_rate))
            }
            Some(Limit::QueueMax { max, .. }) => self.by_service(of, &told.holders, *max, of_queue).await?,
            Some(Limit::ClusterCap { cap: slots, .. } | Limit::WorkersBusy { slots, .. }) => {
                let ahead = of_queue.saturating_add(elsewhere);
                self.by_service(of, &told.holders, *slots, ahead).await?
            }
            Some(_) => None,
        })
    }

    /// From how long work took lately; where nobody recorded that, from how long those that run have run.
    async fn by_service(
        &self,
        of: Of,
        holders: &[Running],
        slots: u32,
        ahead: u64,
    ) -> Result<Option<Estimate>, StoreError> {
        Ok(match self.times.recent(of).await? {
            Some(served) => Some(Estimate::by_record(served, holders, slots, ahead)),
            None => Estimate::by_holders(holders, slots, ahead),
        })
    }

    /// Everything that keeps it from starting.
    fn limits(&self, look: &TaskLook, standing: &Standing) -> Vec<Limit> {
        let mut limits = Vec::new();
        if let State::Delayed { until } = look.state {
            limits.push(Limit::Delay { for_ms: millis(until.since(standing.now)) });
        }
        let queue = self.queues.iter().find(|queue| queue.limits.name == look.queue);
        if queue.is_some_and(|queue| queue.is_paused) {
            limits.push(Limit::QueuePaused { queue: look.queue.clone() });
        }
        let of_key = look.key.as_deref().and_then(|key| key_limit(key, standing));
        let (paused, of_key) = match of_key {
            Some(paused @ Limit::KeyPaused { .. }) => (Some(paused), None),
            of_key => (None, of_key),
        };
        limits.extend(paused);
        // A pause is what somebody wanted; whatever else holds it, nobody would start it.
        let serving = self.serving(&look.queue);
        if serving.is_empty() {
            limits.push(Limit::NoWorker { queue: look.queue.clone() });
        }
        limits.extend(of_key);
        let capped = queue.and_then(|queue| Some((queue.in_use, queue.limits.max?)));
        if let Some((in_use, max)) = capped.filter(|(in_use, max)| in_use >= max) {
            limits.push(Limit::QueueMax { queue: look.queue.clone(), in_use, max });
        }
        let (in_use, cap) = self.cluster;
        limits.extend(cap.filter(|cap| in_use >= *cap).map(|cap| Limit::ClusterCap { in_use, cap }));
        let (in_use, slots) =
            serving.iter().fold((0, 0), |sum, worker| (sum.0 + worker.in_use, sum.1 + worker.slots));
        if !serving.is_empty() && serving.iter().all(|worker| worker.in_use >= worker.slots) {
            limits.push(Limit::WorkersBusy { in_use, slots });
        }
        limits
    }

    async fn key(&self, key: &str) -> Result<Option<Explanation>, StoreError> {
        let Some(look) = self.store.look_at_key(key.to_owned()).await? else { return Ok(None) };
        let mut told =
            self.group(Subject::Key(key.to_owned()), Of::Key(key.to_owned()), look.waiting).await?;
        let rule = if look.is_latest { "the newest sent" } else { "each task's own" };
        let in_force = words::in_force(look.pinned.as_ref(), look.sent.as_ref(), rule);
        told.facts = vec![
            Fact { name: "in use", value: look.in_use.to_string() },
            Fact { name: "waiting", value: look.waiting.to_string() },
            Fact { name: "delayed", value: look.delayed.to_string() },
            Fact { name: "limits in force", value: in_force },
            Fact { name: "paused", value: words::yes(look.is_paused) },
        ];
        told.facts.extend(look.unread.map(|text| Fact { name: "limits that cannot be read", value: text }));
        if look.is_paused && told.held_by.is_empty() {
            told.held_by.push(Limit::KeyPaused { key: key.to_owned() });
            told.help = self.help(&told.held_by, false);
        }
        Ok(Some(told))
    }

    async fn queue(&self, name: &str) -> Result<Option<Explanation>, StoreError> {
        let Some(look) = self.queues.iter().find(|queue| queue.limits.name == name) else { return Ok(None) };
        let of = Of::Queue(name.to_owned());
        let mut told = self.group(Subject::Queue(name.to_owned()), of, look.waiting).await?;
        told.facts = vec![
            Fact { name: "in use", value: words::of(look.in_use, look.limits.max) },
            Fact { name: "waiting", value: words::counted(look.waiting) },
            Fact { name: "delayed", value: words::counted(look.delayed) },
            Fact { name: "priority", value: look.limits.priority.to_string() },
            Fact { name: "paused", value: words::yes(look.is_paused) },
            Fact { name: "in use in the cluster", value: words::of(self.cluster.0, self.cluster.1) },
        ];
        told.workers = self.serving(name);
        Ok(Some(told))
    }

    /// A key or a queue: what holds the first in its line holds all of it, or at least that one.
    async fn group(&self, subject: Subject, of: Of, waiting: u64) -> Result<Explanation, StoreError> {
        let is_counted_whole = matches!(of, Of::Key(_));
        let holders = self.store.holders(of.clone(), MOST).await?;
        let first = self.store.line(of, 1).await?.into_iter().next();
        let first = match first {
            Some(look) => self.task(look.id).await?,
            None => None,
        };
        let mut told = Explanation { subject: subject.to_string(), ..Explanation::empty() };
        told.holders = self.running(holders);
        told.verdict = match &first {
            None => "nothing waits".to_owned(),
            Some(first) => {
                let waiting = if is_counted_whole { waiting.to_string() } else { words::counted(waiting) };
                format!("{waiting} wait; {}: {}", first.subject, first.verdict)
            }
        };
        if let Some(first) = &first {
            (told.held_by, told.help) = (first.held_by.clone(), first.help.clone());
        }
        told.first = first.map(Box::new);
        Ok(told)
    }

    fn serving(&self, queue: &str) -> Vec<Serving> {
        let serves = |worker: &&WorkerLook| match worker.queues.as_slice() {
            [] => queue != SERVER_QUEUE,
            queues => queues.iter().any(|name| name == queue),
        };
        let serving = |worker: &WorkerLook| Serving {
            id: worker.id.0,
            name: worker.name.clone(),
            in_use: worker.in_use,
            slots: worker.slots,
        };
        self.workers.iter().filter(serves).map(serving).collect()
    }

    fn names(&self) -> HashMap<i64, String> {
        self.workers.iter().map(|worker| (worker.id.0, worker.name.clone())).collect()
    }

    fn running(&self, holders: Vec<Holder>) -> Vec<Running> {
        let workers: HashMap<i64, &WorkerLook> =
            self.workers.iter().map(|worker| (worker.id.0, worker)).collect();
        let running = |holder: Holder| Running {
            task: holder.id.0,
            worker: workers
                .get(&holder.worker.0)
                .map_or_else(|| "a worker that is gone".to_owned(), |worker| worker.name.clone()),
            lease_ms: workers.get(&holder.worker.0).map(|worker| millis(worker.lease_left)),
            kind: holder.kind,
            queue: holder.queue,
            key: holder.key,
            for_ms: millis(holder.held_for),
        };
        // What is only at hand holds nothing.
        holders.into_iter().filter(|holder| !holder.is_at_hand).map(running).collect()
    }
}

/// Whether it will never start, because it is too late for that by then.
fn expired(look: &TaskLook, standing: &Standing) -> Option<Limit> {
    let good_until = standing.good_until?;
    let starts = match look.state {
        State::Delayed { until } => until.max(standing.now),
        _ => standing.now,
    };
    (good_until <= starts).then(|| Limit::Expired { for_ms: millis(good_until.since(standing.now)) })
}

fn key_limit(key: &str, standing: &Standing) -> Option<Limit> {
    let key = key.to_owned();
    if let Some(text) = standing.under.unread.clone().filter(|_| standing.under.hold != Some(Hold::Paused)) {
        return Some(Limit::KeyUnread { key, text });
    }
    if let Some(until) = standing.under.resting.filter(|_| standing.under.hold != Some(Hold::Paused)) {
        return Some(Limit::KeyRests { key, for_ms: millis(until.since(standing.now)) });
    }
    match standing.under.hold {
        None | Some(Hold::Line) => None,
        Some(Hold::Paused) => Some(Limit::KeyPaused { key }),
        Some(Hold::Rate { until }) => {
            let rate = standing.under.in_force.and_then(|limits| limits.rate().map(ToString::to_string));
            let for_ms = millis(until.since(standing.now));
            Some(Limit::KeyRate { key, rate: rate.unwrap_or_default(), for_ms })
        }
        Some(Hold::Slots) => {
            let max = standing.under.in_force.and_then(|limits| limits.max()).unwrap_or_default();
            Some(Limit::KeyMax { key, in_use: standing.under.in_use, max, weight: standing.weight })
        }
    }
}

fn facts(look: &TaskLook, standing: Option<&Standing>) -> Vec<Fact> {
    let mut facts = vec![Fact { name: "queue", value: look.queue.clone() }];
    facts.extend(look.key.iter().map(|key| Fact { name: "key", value: key.clone() }));
    facts.push(Fact { name: "priority", value: look.priority.to_string() });
    if let Some(record) = &look.record {
        facts.push(Fact { name: "kind", value: record.kind.clone() });
        facts.push(Fact { name: "starts", value: words::of(look.attempt, Some(record.retry.max_attempts)) });
    }
    let Some(standing) = standing else { return facts };
    if let Some(limits) = &standing.under.in_force {
        facts.push(Fact { name: "limits in force", value: words::limits(limits) });
    }
    if let Some(until) = standing.good_until {
        let value = format!("in {}", words::span(millis(until.since(standing.now))));
        facts.push(Fact { name: "expires", value });
    }
    facts
}
