//! The seam between durable work and the database it lives in.
//!
//! Owns what a store must do and the words it is said in. A store has no rules of its own: whether a task may start is
//! decided by the crate's plan, inside the store's transaction.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use flowgate_core::{Limits, OptionError, Rate, Tick};

use super::{
    offers::{Offer, Offered},
    pins::Half,
    seen::{Holder, KeyLook, Of, QueueLook, Standing, TaskLook, WorkerLook},
};
use crate::{
    ledger::Ledger,
    record::{Parts, Unreadable},
    task::{NewTask, TaskId},
};

/// What a store gives back, in time.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What can go wrong with a store.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What was asked for cannot be.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The database refused, or cannot be reached.
    #[error("the store failed while {doing}: {why}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the database said.
        why: String,
    },
    /// A row cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The worker's lease ran out and its tasks were given to others.
    #[error("worker {worker} is no longer registered: its lease ran out")]
    Gone {
        /// The worker that asked.
        worker: WorkerId,
    },
    /// Some tasks could not be cancelled, for somebody is settling them who does not end. The others were.
    #[error(
        "task {task} is being settled by a process that does not finish: another open transaction may be blocking it; try \
         again"
    )]
    Settling {
        /// One of those.
        task: TaskId,
        /// What became of each that was to be cancelled, in their order. `None`: it is one of those.
        became: Vec<Option<Cancelled>>,
    },
    /// Limits could not be changed: that waits for turns under way, and one of them, or the change, for somebody's lock.
    #[error(
        "{by} has something locked for which this change would have to wait; nothing was changed: try again when that is over"
    )]
    HeldUp {
        /// Who that seems to be, in words.
        by: String,
    },
    /// A task waits for another one that waits for its slot.
    #[error(
        "RC5026: re-entrant: task {awaited} waits for a slot of {place} that task {holding} holds, which would wait for it; \
         let task {holding} end first, or send task {awaited} with another key or to another queue"
    )]
    ReEntrant {
        /// The one that runs, and would wait.
        holding: TaskId,
        /// The one it would wait for.
        awaited: TaskId,
        /// What they share, and how much of it is in use.
        place: String,
    },
}

/// A process that runs tasks, for as long as it renews its lease. Never used again once it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerId(pub i64);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What became of a task that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number, or the number of the task that was sent before with the same dedupe id.
    pub id: TaskId,
    /// Whether it was not stored, because of that other one.
    pub is_duplicate: bool,
}

/// A task that a worker holds.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Its number.
    pub id: TaskId,
    /// The lease it is held under: a fencing token, never given twice.
    pub lease: i64,
    /// Which start this is, counted from 1.
    pub attempt: u32,
    /// How many slots of its key it holds.
    pub weight: u32,
    /// From when on it must not be started.
    pub good_until: Option<Tick>,
    /// What its handler gets, as stored.
    pub record: Bytes,
    pub(crate) place: Place,
}

/// Where a claimed task came from, and what it holds there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) lane: i64,
    pub(crate) queue: i64,
    pub(crate) key: Option<i64>,
}

/// How a run of a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It did what it should.
    Done {
        /// What its sender may ask for, if the task keeps its result.
        result: Vec<u8>,
    },
    /// It failed, and is tried again after this wait, unless this was its last attempt.
    Failed {
        /// Why.
        error: String,
        /// How long it waits before it joins the line again.
        retry_after: Duration,
    },
    /// It failed, and no other attempt can help.
    Dead {
        /// Why.
        error: String,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// It never started and goes back to its line, without having used up an attempt.
    Returned,
    /// Its worker is gone. It goes back to its line, unless this was its last attempt.
    Lost,
}

/// A claimed task and how it ended.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The task.
    pub task: Claimed,
    /// How it ended.
    pub end: End,
}

impl Settle {
    /// Whether a failure of this attempt is followed by no other one.
    pub(crate) fn is_last(&self) -> bool {
        Parts::of(&self.task.record).map_or(true, |parts| self.task.attempt >= parts.retry.max_attempts)
    }
}

/// What a worker would like to run.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// How many tasks at most.
    pub slots: u32,
    /// How many of one queue at most.
    pub per_queue: u32,
    /// Whether the counters of capped queues and of the cluster are locked first. Only a turn that locks them may
    /// take more tasks than it gives back, and only a turn that gives nothing back may lock them.
    pub with_locks: bool,
}

/// How long dead tasks are kept.
pub const DEAD_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What is waited for until then need not be doubted when a process begins.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// So long a store remembers that a task was cancelled while it ran, and then for as long again while somebody still holds it: a
/// worker that is gone gives it back no sooner than it is looked for.
pub(crate) const CANCELLING: Duration = Duration::from_secs(60);

/// A claim takes no further task when it has taken so many bytes: it is one row, of which a store has to make one
/// value, and those have a maximum of a gigabyte. The next claim goes on.
pub(crate) const MOST_BYTES: usize = 64 << 20;

/// A key that is in use has at most so many lanes with nothing in them, for about as long as an upkeep takes to come by.
pub(crate) const MOST_IDLE: u32 = 16;

/// Tasks that a worker would like to have at hand when tasks of its own end (soft caps), only of queues of
/// which it holds something. Each starts in the place of a task of its queue that ended here, so the running
/// tasks never exceed a cap. A task with a key also starts in the place of one of its key, and is had at hand
/// only where the key is full, has no rate, and all of its running tasks run here: so nobody else can
/// overtake it. Until it starts it counts nowhere.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// How many tasks at most.
    pub most: u32,
    /// For how long. A task that has not started by then goes back to its line.
    pub lease: Duration,
}

/// One turn of a worker: what it finished, and what it takes instead, in one transaction.
#[derive(Debug, Default)]
pub struct Turn {
    /// What ended.
    pub settles: Vec<Settle>,
    /// What was claimed ahead and has started: no more of each queue than `settles` gives back of it, and no more slots
    /// of each key. Some of these may have ended, too.
    pub starts: Vec<Claimed>,
    /// What it takes. `None`: nothing.
    pub want: Option<Want>,
    /// What it takes ahead: without a key, if it gets all it wants.
    pub ahead: Option<Ahead>,
}

/// What came of a turn.
#[derive(Debug, Default)]
pub struct Turned {
    /// The tasks taken, each within every limit.
    pub claimed: Vec<Claimed>,
    /// The tasks claimed ahead.
    pub ahead: Vec<Claimed>,
    /// The tasks whose settling or start changed nothing, because the lease had been lost before.
    pub lost: Vec<TaskId>,
    /// The store's time.
    pub now: Tick,
    /// When to ask again.
    pub again: Again,
    /// Limits that cannot be read: what waits under them was passed over.
    pub unread: Vec<Unread>,
}

/// Limits that cannot be read: written by a newer version, or by hand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unread {
    /// The key they are of.
    pub key: String,
    /// What stands there.
    pub text: String,
}

/// When a worker with free slots should ask for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// When it is woken.
    #[default]
    WhenWoken,
    /// At once.
    Now,
    /// At once, with the counters locked. Of what it wanted something is left for that.
    WithLocks,
    /// In a moment: what there may be was locked by others.
    Soon,
}

/// A worker that makes itself known.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// What people call it.
    pub name: String,
    /// How many tasks it runs at once: as many as it has processes, and no more than it may claim.
    pub slots: u32,
    /// The queues it serves. Empty: all but [`SERVER_QUEUE`](crate::SERVER_QUEUE).
    pub queues: Vec<String>,
    /// How long it may be silent.
    pub lease: Duration,
}

/// What upkeep found.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Delayed tasks that joined their line.
    pub due: u32,
    /// Tasks that were not started in time.
    pub expired: u32,
    /// Tasks taken back from workers that are gone, and those claimed ahead that did not start in time.
    pub recovered: u32,
    /// When there will be something to do again, unless something changes.
    pub next: Option<Duration>,
    /// What was left to the next time, because somebody has it locked.
    pub held_up: Option<StoreError>,
}

/// A queue and its cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Its name.
    pub name: String,
    /// Lower is served first.
    pub priority: i32,
    /// How many of its tasks may be claimed or running, over all workers.
    pub max: Option<u32>,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyChange {
    /// Nothing of it starts.
    Pause,
    /// Ends a pause.
    Resume,
    /// These limits overrule all that were sent: a pinned max every max, a pinned rate every rate. What is not pinned holds
    /// as it was sent. What holds for gates alone is refused, as with [`NewTask::limits`](crate::NewTask::limits). With a rate,
    /// what was spent of any other is forgotten; rests go on.
    Pin(Limits),
    /// Changes what is pinned by halves, whatever others change at the same time. A rate is as with `Pin`.
    Halves {
        /// The max.
        max: Half<u32>,
        /// The rate.
        rate: Half<Rate>,
    },
    /// The limits that were sent hold again.
    Unpin,
    /// From now on (`true`) the newest limits sent govern all that wait, or (`false`) each waits under its own.
    Latest(bool),
    /// Which of the two holds is as for all keys that have no rule of their own ([`Store::set_latest`]).
    LatestAsOthers,
    /// Forgets what was spent of its rates.
    ResetRate,
    /// Nothing of it starts for this long, or until a [`Wake`](KeyChange::Wake) by the same number. It keeps
    /// its line, and holds no slot meanwhile.
    Rest {
        /// Whose rest it is: several may want one at the same time.
        by: u32,
        /// How long at most.
        lasting: Duration,
    },
    /// The same, but one by the same number that lasts longer goes on.
    RestOn {
        /// Whose rest it is.
        by: u32,
        /// How long at least.
        lasting: Duration,
    },
    /// Ends rests.
    Wake {
        /// Whose they were.
        by: Vec<u32>,
    },
    /// Ends all of its rests, whosever they are.
    WakeAll,
}

impl KeyChange {
    /// Whether it changes what is kept of the key's rates and rests.
    pub(crate) fn is_booked(&self) -> bool {
        use KeyChange::{ResetRate, Rest, RestOn, Wake, WakeAll};
        matches!(self, ResetRate | Rest { .. } | RestOn { .. } | Wake { .. } | WakeAll) || self.pins_a_rate()
    }

    fn pins_a_rate(&self) -> bool {
        match self {
            KeyChange::Pin(limits) => limits.rate().is_some(),
            KeyChange::Halves { rate, .. } => matches!(rate, Half::Pin(_)),
            _ => false,
        }
    }

    /// What is kept of a key's rates and rests after this change, as text.
    pub(crate) fn book(&self, kept: &str, now: Tick) -> String {
        let mut ledger = Ledger::read(kept);
        match self {
            KeyChange::ResetRate => ledger.reset(),
            _ if self.pins_a_rate() => ledger.reset(),
            KeyChange::Rest { by, lasting } => ledger.rest(*by, now, *lasting),
            KeyChange::RestOn { by, lasting } => ledger.rest_on(*by, now, *lasting),
            KeyChange::Wake { by } => ledger.wake(by),
            KeyChange::WakeAll => ledger.wake_all(),
            _ => {}
        }
        ledger.tidy(now);
        ledger.to_text()
    }
}

/// What is left of a task that had not started when it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// A dead task.
    Dead,
    Nothing,
}

/// What became of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not start.
    Waiting,
    /// It runs; its worker was told to stop it.
    Running,
    /// There is no such task that could still run.
    Unknown,
}

/// A wake-up that reaches a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There may be something to claim.
    Work,
    /// A task was delayed: what upkeep waits for may have changed.
    Due,
    /// A lane rests for this long, until its rate lets the next task start: upkeep may have to wake up
    /// earlier.
    Rests(Duration),
    /// This task should be stopped.
    Cancel(TaskId),
    /// Limits changed, or something was paused: of the key with this number, or of anything. What is at hand was
    /// claimed under others.
    Limits(Option<i64>),
    /// A task whose result is kept has ended.
    Ended(TaskId),
    /// Anything may have been said that was not heard.
    Missed,
}

/// A database that keeps tasks. All that it accepts is durable when it answers.
///
/// # Cancel safety
/// A reply that is dropped may have had its effect or not, never half of it.
pub trait Store: Send + Sync + 'static {
    /// Stores these tasks, in this order. All or none of them.
    fn send(&self, tasks: Vec<NewTask>) -> Reply<'_, Vec<Sent>>;

    /// Makes a worker known.
    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId>;

    /// Renews a worker's lease. `false`: it is gone, and what it held belongs to others.
    fn beat(&self, worker: WorkerId) -> Reply<'_, bool>;

    /// Settles and claims for a worker, in one transaction.
    fn turn(&self, worker: WorkerId, turn: Turn) -> Reply<'_, Turned>;

    /// A worker has free slots and nothing else to ask for: a send of this process may claim for it, in the transaction that
    /// stores its tasks. One offer of a worker at a time, and no turn of it while a send has the offer. `None`: sends of this
    /// store claim for nobody.
    fn offer(&self, offer: Offer) -> Option<Offered>;

    /// Whether one transaction for the tasks of several callers costs so much less than one for each that
    /// callers about to send may join it first.
    fn gathers_sends(&self) -> bool {
        false
    }

    /// Gives back what a worker holds but does not know of: claims whose reply it never got. `known` are the leases it
    /// knows. Gives how many tasks went back to their lines.
    fn reconcile(&self, worker: WorkerId, known: Vec<i64>) -> Reply<'_, u32>;

    /// Makes a worker unknown. What it still holds is taken back by upkeep at once.
    fn leave(&self, worker: WorkerId) -> Reply<'_, ()>;

    /// What time brings about: delayed tasks join their line, expired ones leave it, tasks of workers that are gone go back.
    /// Any number of processes may do it at the same time.
    fn upkeep(&self) -> Reply<'_, Kept>;

    /// The part of upkeep that rates with many starts a second need, in few steps: looks again at lanes whose
    /// rest is over. Gives how long the next lane still rests.
    fn wake_rested(&self) -> Reply<'_, Option<Duration>>;

    /// Sets how many tasks may be claimed or running in all. As with the next two, no claim is under way meanwhile; where one
    /// does not end, [`StoreError::HeldUp`] tells why.
    fn set_cluster_cap(&self, cap: Option<u32>) -> Reply<'_, ()>;

    /// For keys that have no rule of their own: the newest limits sent govern all that wait (`true`), or each waits under its
    /// own (`false`, as in a new store).
    fn set_latest(&self, is_latest: bool) -> Reply<'_, ()>;

    /// Makes a queue, or changes it.
    fn set_queue(&self, queue: QueueLimits) -> Reply<'_, ()>;

    /// Nothing of this queue starts, or it does again.
    fn pause_queue(&self, name: String, is_paused: bool) -> Reply<'_, bool>;

    /// Changes a key, which is made if it is not known.
    fn change_key(&self, key: String, change: KeyChange) -> Reply<'_, ()>;

    /// What is known of a key.
    fn look_at_key(&self, key: String) -> Reply<'_, Option<KeyLook>>;

    /// What is known of the queues.
    fn queues(&self) -> Reply<'_, Vec<QueueLook>> {
        self.queues_counted(u32::MAX)
    }

    /// The same, with the line of each counted up to `most`: what it costs does not grow with what waits.
    fn queues_counted(&self, most: u32) -> Reply<'_, Vec<QueueLook>>;

    /// How many tasks are claimed or running in all, and how many may be.
    fn cluster(&self) -> Reply<'_, (u32, Option<u32>)>;

    /// What is known of a task.
    fn look_at_task(&self, id: TaskId) -> Reply<'_, Option<TaskLook>>;

    /// Stops a task from starting, or tells its worker to stop it.
    fn cancel(&self, id: TaskId) -> Reply<'_, Cancelled> {
        let cancelled = self.cancel_all(vec![id]);
        Box::pin(async move { Ok(cancelled.await?.pop().unwrap_or(Cancelled::Unknown)) })
    }

    /// The same for many at once: what became of each, in their order. If it fails, some may have been cancelled;
    /// [`StoreError::Settling`] says which.
    fn cancel_all(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>>;

    /// Which of these tasks somebody cancelled while they ran: for a worker that may have missed the wake-up.
    fn cancelled(&self, among: Vec<TaskId>) -> Reply<'_, Vec<TaskId>>;

    /// Tasks that will not run again, the newest first, before the one given.
    fn dead(&self, before: Option<TaskId>, most: u32) -> Reply<'_, Vec<TaskLook>>;

    /// Sends a dead task back to its line, as new.
    fn revive(&self, id: TaskId) -> Reply<'_, bool>;

    /// What is claimed or running, the oldest first, and then what is only at hand.
    fn holders(&self, of: Of, most: u32) -> Reply<'_, Vec<Holder>>;

    /// What stands in line, the oldest first, and then what is delayed.
    fn line(&self, of: Of, most: u32) -> Reply<'_, Vec<TaskLook>>;

    /// Where a task that nobody holds stands. `None`: it is held, ended or unknown.
    fn standing(&self, id: TaskId) -> Reply<'_, Option<Standing>>;

    /// The workers whose lease lasts.
    fn workers(&self) -> Reply<'_, Vec<WorkerLook>>;

    /// Recounts everything that is counted and gives what did not agree, in words. Empty: all is well.
    fn audit(&self) -> Reply<'_, Vec<String>>;

    /// Wake-ups from now on. A receiver that cannot keep up misses some, and is told so by the channel.
    fn wakes(&self) -> tokio::sync::broadcast::Receiver<Wake>;
}
