//! The store itself: each thing that can be asked of it, handed to the thread that does it.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::sync::broadcast;

use super::{audit, limits, look, open, send, settle, threads::Threads, turn, upkeep, why};
use crate::{
    clock::{SystemWall, Wall},
    store::{
        Cancelled, Holder, Kept, KeyChange, KeyLook, Leaving, NewWorker, Of, Offer, Offered, QueueLimits,
        QueueLook, Reply, Sent, Standing, Store, StoreError, TaskLook, Turn, Turned, Wake, WorkerId,
        WorkerLook,
    },
    task::{NewTask, TaskId},
};

/// How many wake-ups one that listens may be behind.
const WAKES: usize = 1024;

/// Tasks in one SQLite file. Everything is on disk when it is answered.
pub struct Sqlite {
    pub(super) threads: Threads,
    wakes: broadcast::Sender<Wake>,
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens the file, which is made if it is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, Arc::new(SystemWall))
    }

    /// Opens the file, with a clock of one's own.
    pub fn open_with(path: impl AsRef<Path>, wall: Arc<dyn Wall>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        // The writer first: it makes the file and its tables.
        let writer = open::writer(path)?;
        let readers = (open::reader(path)?, open::reader(path)?);
        let (wakes, _) = broadcast::channel(WAKES);
        let threads = Threads::start(writer, Some(readers), wall, wakes.clone())?;
        Ok(Sqlite { threads, wakes })
    }

    /// A store that is gone when it is dropped: for tests, and for work that need not outlive the process.
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::in_memory_with(Arc::new(SystemWall))
    }

    /// The same, with a clock of one's own.
    pub fn in_memory_with(wall: Arc<dyn Wall>) -> Result<Self, StoreError> {
        let (wakes, _) = broadcast::channel(WAKES);
        let threads = Threads::start(open::in_memory()?, None, wall, wakes.clone())?;
        Ok(Sqlite { threads, wakes })
    }
}

impl Store for Sqlite {
    fn send(&self, tasks: Vec<NewTask>) -> Reply<'_, Vec<Sent>> {
        self.threads.write("storing tasks", move |hand| send::send(hand, &tasks))
    }

    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId> {
        self.threads.write("registering a worker", move |hand| turn::register(hand, &worker))
    }

    fn beat(&self, worker: WorkerId) -> Reply<'_, bool> {
        self.threads.write("renewing a lease", move |hand| turn::beat(hand, worker))
    }

    fn turn(&self, worker: WorkerId, turn: Turn) -> Reply<'_, Turned> {
        self.threads.write("settling and claiming", move |hand| turn::turn(hand, worker, turn))
    }

    /// One thread has sends and turns in one hand: a claim that follows its send is in the next transaction, which waits for
    /// nothing but the disk.
    fn offer(&self, _offer: Offer) -> Option<Offered> {
        None
    }

    fn reconcile(&self, worker: WorkerId, known: Vec<i64>) -> Reply<'_, u32> {
        self.threads.write("comparing leases", move |hand| settle::reconcile(hand, worker, &known))
    }

    fn leave(&self, worker: WorkerId) -> Reply<'_, ()> {
        self.threads.write("removing a worker", move |hand| turn::leave(hand, worker))
    }

    fn upkeep(&self) -> Reply<'_, Kept> {
        self.threads.write("doing upkeep", upkeep::upkeep)
    }

    fn wake_rested(&self) -> Reply<'_, Option<Duration>> {
        self.threads.write("waking rested keys", upkeep::wake_rested)
    }

    fn set_cluster_cap(&self, cap: Option<u32>) -> Reply<'_, ()> {
        self.threads.write("setting the cluster's cap", move |hand| limits::set_cluster_cap(hand, cap))
    }

    fn set_latest(&self, is_latest: bool) -> Reply<'_, ()> {
        self.threads.write("setting whose limits govern", move |hand| limits::set_latest(hand, is_latest))
    }

    fn set_queue(&self, queue: QueueLimits) -> Reply<'_, ()> {
        self.threads.write("changing a queue", move |hand| limits::set_queue(hand, &queue))
    }

    fn pause_queue(&self, name: String, is_paused: bool) -> Reply<'_, bool> {
        self.threads.write("pausing a queue", move |hand| limits::pause_queue(hand, &name, is_paused))
    }

    fn change_key(&self, key: String, change: KeyChange) -> Reply<'_, ()> {
        self.threads.write("changing a key", move |hand| limits::change_key(hand, &key, &change))
    }

    fn look_at_key(&self, key: String) -> Reply<'_, Option<KeyLook>> {
        self.threads.read("reading a key", move |db, _| look::key(db, &key))
    }

    fn queues_counted(&self, most: u32) -> Reply<'_, Vec<QueueLook>> {
        self.threads.read("reading the queues", move |db, _| look::queues(db, most))
    }

    fn cluster(&self) -> Reply<'_, (u32, Option<u32>)> {
        self.threads.read("reading the cluster", |db, _| look::cluster(db))
    }

    fn look_at_task(&self, id: TaskId) -> Reply<'_, Option<TaskLook>> {
        self.threads.read("reading a task", move |db, now| look::task(db, id, now))
    }

    fn cancel_all(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>> {
        self.threads.write("cancelling tasks", move |hand| upkeep::cancel_all(hand, &ids, Leaving::Dead))
    }

    fn cancelled(&self, among: Vec<TaskId>) -> Reply<'_, Vec<TaskId>> {
        self.threads.read("checking for cancellations", move |db, _| upkeep::cancelled(db, &among))
    }

    fn dead(&self, before: Option<TaskId>, most: u32) -> Reply<'_, Vec<TaskLook>> {
        self.threads.read("reading the dead list", move |db, _| look::dead(db, before, most))
    }

    fn revive(&self, id: TaskId) -> Reply<'_, bool> {
        self.threads.write("reviving a task", move |hand| send::revive(hand, id))
    }

    fn holders(&self, of: Of, most: u32) -> Reply<'_, Vec<Holder>> {
        self.threads.read("reading what runs", move |db, now| why::holders(db, &of, most, now))
    }

    fn line(&self, of: Of, most: u32) -> Reply<'_, Vec<TaskLook>> {
        self.threads.read("reading the line", move |db, now| why::line(db, &of, most, now))
    }

    fn standing(&self, id: TaskId) -> Reply<'_, Option<Standing>> {
        self.threads.read("reading a task", move |db, now| why::standing(db, id, now))
    }

    fn workers(&self) -> Reply<'_, Vec<WorkerLook>> {
        self.threads.read("reading the workers", why::workers)
    }

    fn audit(&self) -> Reply<'_, Vec<String>> {
        self.threads.read("recounting", audit::audit)
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }
}
