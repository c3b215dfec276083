//! What an explanation says, as data.

use serde::Serialize;

use super::estimate::Estimate;

/// Why something waits, and what would help. Times are milliseconds, from the store's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// `task 17`, ``key `acme` `` or ``queue `email` ``.
    pub subject: String,
    /// The answer in one sentence.
    pub verdict: String,
    /// What holds it: the first one decides. Empty: nothing does.
    pub held_by: Vec<Limit>,
    /// What is known of it.
    pub facts: Vec<Fact>,
    /// Where it stands.
    pub place: Option<Spot>,
    /// When it should start.
    pub estimate: Option<Estimate>,
    /// Who holds the slots of the limit that decides, the oldest first; not all of them, if they are many.
    pub holders: Vec<Running>,
    /// The workers that serve its queue.
    pub workers: Vec<Serving>,
    /// What would free it.
    pub help: Vec<String>,
    /// Of a key or a queue: the first in its line.
    pub first: Option<Box<Explanation>>,
}

impl Explanation {
    /// One that says nothing yet.
    pub(super) fn empty() -> Self {
        Explanation {
            subject: String::new(),
            verdict: String::new(),
            held_by: Vec::new(),
            facts: Vec::new(),
            place: None,
            estimate: None,
            holders: Vec::new(),
            workers: Vec::new(),
            help: Vec::new(),
            first: None,
        }
    }
}

/// Something worth knowing: a name and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// `attempt`.
    pub name: &'static str,
    /// `2 of 3`.
    pub value: String,
}

/// A limit that keeps a task from starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "limit", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Limit {
    /// Its `good_until` comes before it can start: it never will.
    Expired {
        /// In so long; 0 if it has passed.
        for_ms: u64,
    },
    /// It is not to start before then.
    Delay {
        /// In so long.
        for_ms: u64,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        queue: String,
    },
    /// Its key is paused.
    KeyPaused {
        /// The key.
        key: String,
    },
    /// Its limits cannot be read: a newer version wrote them, or a hand.
    KeyUnread {
        /// The key they are of.
        key: String,
        /// What stands there.
        text: String,
    },
    /// Its key rests: the one before it is tried again in its place, or something that follows from it is awaited.
    KeyRests {
        /// The key.
        key: String,
        /// For so long at most.
        for_ms: u64,
    },
    /// Its key's rate is spent.
    KeyRate {
        /// The key.
        key: String,
        /// The rate in words.
        rate: String,
        /// For so long.
        for_ms: u64,
    },
    /// Its key has too few free slots.
    KeyMax {
        /// The key.
        key: String,
        /// How many are taken.
        in_use: u32,
        /// How many there are.
        max: u32,
        /// How many it wants.
        weight: u32,
    },
    /// A task before it wants more slots of their key than are free, and nobody overtakes that one.
    KeyHead {
        /// The key.
        key: String,
        /// The task that stands there.
        task: i64,
        /// How many are taken.
        in_use: u32,
        /// How many there are.
        max: u32,
        /// How many that one wants.
        weight: u32,
    },
    /// Its queue has no free slot.
    QueueMax {
        /// The queue.
        queue: String,
        /// How many are taken.
        in_use: u32,
        /// How many there are.
        max: u32,
    },
    /// The cluster has no free slot.
    ClusterCap {
        /// How many are taken.
        in_use: u32,
        /// How many there are.
        cap: u32,
    },
    /// No worker serves its queue.
    NoWorker {
        /// The queue.
        queue: String,
    },
    /// All workers that serve its queue are full.
    WorkersBusy {
        /// How many tasks they run.
        in_use: u32,
        /// How many they can.
        slots: u32,
    },
}

impl Limit {
    /// Whether no clock ends it and no work that does: somebody has to.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Limit::QueuePaused { .. }
            | Limit::KeyPaused { .. }
            | Limit::KeyUnread { .. }
            | Limit::NoWorker { .. } => true,
            Limit::KeyMax { max, weight, .. } | Limit::KeyHead { max, weight, .. } => weight > max,
            _ => false,
        }
    }
}

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// How many of its key are ahead of it; `None` without a key.
    pub ahead_in_key: Option<u64>,
    /// How many of its queue are ahead of it.
    pub ahead_in_queue: u64,
    /// How many are ready in queues that are served before its own, and share a cap or a worker with it.
    pub ahead_in_other_queues: u64,
}

/// A task that holds a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Running {
    /// The task.
    pub task: i64,
    /// Its kind.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: Option<String>,
    /// Who runs it.
    pub worker: String,
    /// For how long it has run, in milliseconds.
    pub for_ms: u64,
    /// How long its worker's lease lasts, in milliseconds, unless it is renewed. `None`: the worker is gone,
    /// and its tasks are taken back.
    pub lease_ms: Option<u64>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Serving {
    /// Its number.
    pub id: i64,
    /// What people call it.
    pub name: String,
    /// How many tasks it holds.
    pub in_use: u32,
    /// How many it can.
    pub slots: u32,
}
