//! What is seen of keys, queues, tasks and workers by whoever looks into a store.
//!
//! Owns the words of every look: plain facts of one moment. It decides nothing.

use std::time::Duration;

use flowgate_core::{Hold, Limits, RateLook, Tick};

use super::seam::{QueueLimits, WorkerId};
use crate::{record::Record, task::TaskId};

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLook {
    /// The key.
    pub key: String,
    /// How many of its slots are taken.
    pub in_use: u32,
    /// How many of its tasks stand in line.
    pub waiting: u64,
    /// How many of its tasks are delayed.
    pub delayed: u64,
    /// Whether it is paused.
    pub is_paused: bool,
    /// The limits that overrule all that were sent.
    pub pinned: Option<Limits>,
    /// Whether the newest limits sent govern all that wait.
    pub is_latest: bool,
    /// The newest limits sent.
    pub sent: Option<Limits>,
    /// Limits of it that govern and cannot be read, as the store has them: nothing of it starts.
    pub unread: Option<String>,
}

/// What is known of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLook {
    /// Its limits.
    pub limits: QueueLimits,
    /// How many of its tasks are claimed or running.
    pub in_use: u32,
    /// How many of its tasks stand in line.
    pub waiting: u64,
    /// How many of its tasks are delayed.
    pub delayed: u64,
    /// Whether it is paused.
    pub is_paused: bool,
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// In line, behind this many of its own lane.
    Waiting {
        /// How many are ahead of it.
        ahead: u64,
    },
    /// Not yet in line.
    Delayed {
        /// When it joins.
        until: Tick,
    },
    /// Claimed or running.
    Held {
        /// By whom.
        worker: WorkerId,
        /// Since when.
        since: Tick,
        /// Whether it was only claimed ahead (soft caps): it has not started, and holds no slot.
        is_at_hand: bool,
    },
    /// Done.
    Done {
        /// Its result.
        result: Vec<u8>,
    },
    /// It will not run again.
    Dead {
        /// `failed`, `expired` or `cancelled`.
        reason: String,
        /// What its last run said.
        error: String,
    },
}

/// What is known of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLook {
    /// Its number.
    pub id: TaskId,
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: Option<String>,
    /// Its priority.
    pub priority: i16,
    /// How often it was started.
    pub attempt: u32,
    /// Where it is.
    pub state: State,
    /// What it carries, as far as it is kept.
    pub record: Option<Record>,
}

/// Which tasks are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Of {
    /// All.
    #[default]
    All,
    /// The tasks of one queue.
    Queue(String),
    /// The tasks of one key.
    Key(String),
    /// One alone.
    Task(TaskId),
}

/// A task that is claimed or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub id: TaskId,
    /// Its kind.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: Option<String>,
    /// How many slots of its key it holds.
    pub weight: u32,
    /// Which start this is, counted from 1.
    pub attempt: u32,
    /// Who runs it.
    pub worker: WorkerId,
    /// For how long, by the store's clock.
    pub held_for: Duration,
    /// Whether it was only claimed ahead (soft caps): it has not started, and holds no slot.
    pub is_at_hand: bool,
}

/// What is known of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLook {
    /// Its number.
    pub id: WorkerId,
    /// What people call it.
    pub name: String,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// How many it holds that count in the caps: claimed to start at once, or running.
    pub in_use: u32,
    /// How many it has claimed ahead, which count in no cap until they start.
    pub ahead: u32,
    /// The queues it serves. Empty: all but [`SERVER_QUEUE`](crate::SERVER_QUEUE).
    pub queues: Vec<String>,
    /// Until when its lease lasts, unless it is renewed.
    pub lease_until: Tick,
    /// For how long that is, by the store's clock.
    pub lease_left: Duration,
}

/// Where a task that nobody holds stands, and what its key says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The store's time.
    pub now: Tick,
    /// How many slots of its key it wants.
    pub weight: u32,
    /// From when on it must not be started.
    pub good_until: Option<Tick>,
    /// What its key has to say; without one, nothing.
    pub under: Under,
    /// How many of its key are ahead of it in line.
    pub ahead_in_key: u64,
    /// How many of its queue are ahead of it in line, those of a better priority among them: counted up to
    /// [`MOST_COUNTED`](super::MOST_COUNTED).
    pub ahead_in_queue: u64,
    /// What is ready to start in queues that are served before its own.
    pub ahead_elsewhere: Vec<Elsewhere>,
}

/// How a task stands under its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Under {
    /// The limits of its key that hold for it.
    pub in_force: Option<Limits>,
    /// Why its key does not let it start, if it does not.
    pub hold: Option<Hold>,
    /// Until when its key rests, if it does.
    pub resting: Option<Tick>,
    /// How many slots of its key are taken.
    pub in_use: u32,
    /// What the rate of its key has left.
    pub rate: Option<RateLook>,
    /// Its limits as the store has them, where they cannot be read.
    pub unread: Option<String>,
}

/// A queue that is served before another one, and is not paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The queue.
    pub queue: String,
    /// How many of it stand in line that their keys would let start: counted up to [`MOST_COUNTED`](super::MOST_COUNTED).
    pub ready: u64,
}
