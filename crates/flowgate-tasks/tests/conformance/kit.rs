//! A store, a clock that is moved by hand, and words for what tests do most.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowgate_core::{Limits, Tick};
use flowgate_tasks::{
    NewTask, TaskId,
    clock::Wall,
    store::{
        Again, Claimed, End, Kept, KeyChange, NewWorker, QueueLimits, Settle, Shelf, Sqlite, State, Store,
        Turn, Turned, Want, WorkerId,
    },
};

/// Runs each test on every store. A test takes the kit; the audit at its end is not left to it.
macro_rules! on_every_store {
    ($(#[test] async fn $name:ident($kit:ident: &Kit) $body:block)*) => {
        mod laws {
            use super::*;
            $(pub(super) async fn $name($kit: &Kit) $body)*
        }

        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    let kit = crate::kit::Kit::sqlite();
                    super::laws::$name(&kit).await;
                    kit.check().await;
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    let kit = crate::kit::Kit::postgres(stringify!($name)).await;
                    super::laws::$name(&kit).await;
                    kit.check().await;
                }
            )*
        }
    };
}

/// A wall clock that stands still until it is moved.
pub(crate) struct HandWall(AtomicU64, AtomicU64);

impl HandWall {
    fn new() -> Arc<Self> {
        Arc::new(HandWall(AtomicU64::new(1_800_000_000_000_000_000), AtomicU64::new(0)))
    }
}

impl Wall for HandWall {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn passed(&self) -> Duration {
        Duration::from_nanos(self.1.load(Ordering::SeqCst))
    }
}

/// The store under test.
pub(crate) struct Kit {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shelf: Arc<dyn Shelf>,
    wall: Arc<HandWall>,
}

impl Kit {
    pub(crate) fn sqlite() -> Kit {
        let wall = HandWall::new();
        let store = Sqlite::in_memory_with(Arc::clone(&wall) as Arc<dyn Wall>).expect("a store in memory");
        Kit::over(Arc::new(store), wall)
    }

    /// One in this file, which others may open.
    pub(crate) fn sqlite_at(file: &std::path::Path) -> Kit {
        let wall = HandWall::new();
        let store = Sqlite::open_with(file, Arc::clone(&wall) as Arc<dyn Wall>).expect("a store in a file");
        Kit::over(Arc::new(store), wall)
    }

    /// A database of its own on the tests' server; names are cut to what PostgreSQL takes.
    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres(name: &str) -> Kit {
        Self::postgres_at(name).await.0
    }

    /// The same, and its URL.
    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres_at(name: &str) -> (Kit, String) {
        use flowgate_tasks::store::{Postgres, PostgresOptions};

        static DATABASES: AtomicU64 = AtomicU64::new(0);
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{number}_{}", &name[..name.len().min(40)]);
        let url = flowgate_testkit::postgres::Postgres::shared().create_database(&name).expect("a database");
        let wall = HandWall::new();
        let options = PostgresOptions { clock: Some(Arc::clone(&wall) as Arc<dyn Wall>) };
        let store = Postgres::connect_with(&url, options).await.expect("a store");
        (Kit::over(Arc::new(store), wall), url)
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Tick {
        self.wall.now()
    }

    fn over(shelf: Arc<dyn Shelf>, wall: Arc<HandWall>) -> Kit {
        Kit { store: shelf.clone(), shelf, wall }
    }

    /// Time passes.
    pub(crate) fn advance(&self, span: Duration) {
        self.set_forward(span);
        self.wall.1.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }

    /// The clock is set forward.
    pub(crate) fn set_forward(&self, span: Duration) {
        self.wall.0.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }

    /// The clock is set back.
    pub(crate) fn set_back(&self, span: Duration) {
        self.wall.0.fetch_sub(span.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Time passes, and what falls due is done.
    pub(crate) async fn pass(&self, span: Duration) -> Kept {
        self.advance(span);
        self.upkeep().await
    }

    /// As a process does it: what was locked by the end of a turn that has replied is done a moment later.
    pub(crate) async fn upkeep(&self) -> Kept {
        let mut kept = self.store.upkeep().await.expect("upkeep");
        for _ in 0..20 {
            let is_in_vain = kept.due + kept.expired + kept.recovered == 0;
            if !is_in_vain || kept.next != Some(Duration::ZERO) {
                break;
            }
            kept = self.store.upkeep().await.expect("upkeep");
        }
        kept
    }

    pub(crate) async fn send(&self, task: NewTask) -> TaskId {
        self.send_all(vec![task]).await[0]
    }

    pub(crate) async fn send_all(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let sent = self.store.send(tasks).await.expect("tasks are stored");
        sent.into_iter().map(|sent| sent.id).collect()
    }

    /// A worker of all queues with a lease of 15 seconds.
    pub(crate) async fn worker(&self) -> Worker {
        self.worker_of(&[]).await
    }

    pub(crate) async fn worker_of(&self, queues: &[&str]) -> Worker {
        self.register(queues, 100).await
    }

    /// A worker of all queues with so many slots.
    pub(crate) async fn small_worker(&self, slots: u32) -> Worker {
        self.register(&[], slots).await
    }

    async fn register(&self, queues: &[&str], slots: u32) -> Worker {
        let id = self.store.register(NewWorker {
            name: "test".to_owned(),
            slots,
            queues: queues.iter().map(|&name| name.to_owned()).collect(),
            lease: Duration::from_secs(15),
        });
        Worker { store: Arc::clone(&self.store), id: id.await.expect("a worker is registered") }
    }

    pub(crate) async fn queue(&self, name: &str, priority: i32, max: Option<u32>) {
        self.store
            .set_queue(QueueLimits { name: name.to_owned(), priority, max })
            .await
            .expect("a queue is set");
    }

    pub(crate) async fn cluster_cap(&self, cap: Option<u32>) {
        self.store.set_cluster_cap(cap).await.expect("a cap is set");
    }

    pub(crate) async fn change_key(&self, key: &str, change: KeyChange) {
        self.store.change_key(key.to_owned(), change).await.expect("a key is changed");
    }

    pub(crate) async fn key_in_use(&self, key: &str) -> u32 {
        let look = self.store.look_at_key(key.to_owned()).await.expect("a look at a key");
        look.map_or(0, |look| look.in_use)
    }

    pub(crate) async fn state(&self, id: TaskId) -> Option<State> {
        self.store.look_at_task(id).await.expect("a look at a task").map(|look| look.state)
    }

    /// The reason why a task is dead.
    pub(crate) async fn reason(&self, id: TaskId) -> Option<String> {
        match self.state(id).await {
            Some(State::Dead { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    /// Everything that is counted agrees with what is there.
    pub(crate) async fn check(&self) {
        let found = self.store.audit().await.expect("an audit");
        assert_eq!(found, [""; 0], "the audit at the end");
    }
}

/// A worker as tests use it.
pub(crate) struct Worker {
    store: Arc<dyn Store>,
    pub(crate) id: WorkerId,
}

impl Worker {
    /// One turn, as it is.
    pub(crate) async fn turn(&self, settles: Vec<Settle>, slots: u32, with_locks: bool) -> Turned {
        let want = (slots > 0).then_some(Want { slots, per_queue: u32::MAX, with_locks });
        self.store.turn(self.id, Turn { settles, want, ..Turn::default() }).await.expect("a turn")
    }

    /// Claims as much as there is, up to so many, asking again as often as it is told to.
    pub(crate) async fn claim(&self, most: u32) -> Vec<Claimed> {
        self.swap(Vec::new(), most).await
    }

    /// Settles, and claims up to so many.
    pub(crate) async fn swap(&self, settles: Vec<Settle>, most: u32) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        let (mut settles, mut with_locks) = (settles, false);
        // Nothing that a store keeps saying may keep a worker busy for ever.
        for _ in 0..100 {
            let left = most - claimed.len() as u32;
            let turned = self.turn(std::mem::take(&mut settles), left, with_locks).await;
            assert_eq!(turned.lost, [], "nothing was lost");
            assert!(turned.claimed.len() <= left as usize, "no more than asked for");
            claimed.extend(turned.claimed);
            let is_full = claimed.len() as u32 == most;
            assert!(
                most == 0 || !is_full || turned.again != Again::WithLocks,
                "a slot is left for the turn that locks"
            );
            match turned.again {
                _ if is_full => return claimed,
                Again::WhenWoken => return claimed,
                again => with_locks = again == Again::WithLocks,
            }
        }
        panic!("told to ask again a hundred times; {} claimed of {most}", claimed.len());
    }

    /// Settles, and gives those that were not this worker's any more.
    pub(crate) async fn settle(&self, settles: Vec<Settle>) -> Vec<TaskId> {
        self.turn(settles, 0, false).await.lost
    }

    pub(crate) async fn done(&self, tasks: Vec<Claimed>) {
        assert_eq!(self.settle(done(tasks)).await, [], "all of them were this worker's");
    }

    pub(crate) async fn end(&self, task: Claimed, end: End) {
        assert_eq!(self.settle(vec![Settle { task, end }]).await, [], "it was this worker's");
    }

    pub(crate) async fn beat(&self) -> bool {
        self.store.beat(self.id).await.expect("a beat")
    }
}

pub(crate) fn done(tasks: Vec<Claimed>) -> Vec<Settle> {
    tasks.into_iter().map(|task| Settle { task, end: End::Done { result: Vec::new() } }).collect()
}

pub(crate) fn ids(tasks: &[Claimed]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

pub(crate) fn task() -> NewTask {
    NewTask::new("test", b"body".to_vec())
}

pub(crate) fn keyed(key: &str, limits: Limits) -> NewTask {
    task().key(key).limits(limits)
}

pub(crate) fn max(max: u32) -> Limits {
    Limits::builder().max(max).build().expect("limits")
}

pub(crate) fn rate(starts: u32, period: &str) -> Limits {
    Limits::builder().rate(starts, period).build().expect("limits")
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
