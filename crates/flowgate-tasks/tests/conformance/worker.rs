//! A worker whose store fails it now and then: before a turn has happened, or after, with its reply lost.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use flowgate_tasks::{
    NewTask, Retry, TaskId,
    store::{
        Cancelled, Holder, Kept, KeyChange, KeyLook, NewWorker, Of, Offer, Offered, QueueLimits, QueueLook,
        Reply, Sent, Standing, State, Store, StoreError, TaskLook, Turn, Turned, Wake, WorkerId, WorkerLook,
    },
    worker::{Failure, Handlers, Prefetch, Worker, WorkerOptions},
};
use tokio::{
    sync::{Notify, broadcast, mpsc, oneshot},
    time::timeout,
};

use crate::kit::{Kit, max};

const DEADLINE: Duration = Duration::from_secs(60);
const TASKS: usize = 200;
const LEASE: Duration = Duration::from_secs(1);

/// When a turn fails.
#[derive(Clone, Copy)]
enum Fault {
    Before,
    After,
    /// The reply comes when what started meanwhile was stopped.
    Late,
    /// Nothing is answered, until a lease must be over; then beats are, and after a while all.
    Away,
    /// None does; but wake-ups are heard only from `wakes`.
    Deaf,
    /// The reply to the first that claims something comes when it is let go.
    Slow,
    /// Nothing is answered any more, nor does it fail.
    Hanging,
    /// Whoever leaves is not heard.
    Unheard,
}

/// How far away it is.
const THERE: u32 = 0;
const AWAY: u32 = 1;
const BACK_FOR_BEATS: u32 = 2;
/// So many new leases are asked for in vain.
const VAIN: u32 = 10;

/// A store of which every third turn fails.
struct Faulty {
    inner: Arc<dyn Store>,
    fault: Fault,
    turns: AtomicU32,
    failed: AtomicU32,
    /// Something was claimed ahead.
    is_at_hand: Notify,
    /// A run was stopped, a reply is let go, or a lease is asked for in vain.
    stopped: Notify,
    away: AtomicU32,
    /// How often a lease was renewed after another one had been asked for.
    late_beats: AtomicU32,
    wakes: broadcast::Sender<Wake>,
}

impl Faulty {
    fn new(kit: &Kit, fault: Fault) -> Arc<Self> {
        let (turns, failed) = (AtomicU32::new(0), AtomicU32::new(0));
        let (is_at_hand, stopped) = (Notify::new(), Notify::new());
        let (inner, away, late_beats) = (Arc::clone(&kit.store), AtomicU32::new(THERE), AtomicU32::new(0));
        let wakes = broadcast::channel(1).0;
        Arc::new(Faulty { inner, fault, turns, failed, is_at_hand, stopped, away, late_beats, wakes })
    }

    fn hangs(&self) -> bool {
        matches!(self.fault, Fault::Hanging) && self.is(AWAY)
    }

    fn is(&self, away: u32) -> bool {
        self.away.load(Ordering::Relaxed) == away
    }

    async fn turn_late(&self, worker: WorkerId, turn: Turn) -> Result<Turned, StoreError> {
        let is_late = !turn.starts.is_empty() && self.failed.fetch_add(1, Ordering::Relaxed) == 0;
        let turned = self.inner.turn(worker, turn).await?;
        if !turned.ahead.is_empty() {
            self.is_at_hand.notify_one();
        }
        if is_late {
            self.stopped.notified().await;
        }
        Ok(turned)
    }
}

fn lost() -> StoreError {
    StoreError::Database { doing: "asking", why: "the connection is gone".to_owned() }
}

impl Faulty {
    async fn turn_slowly(&self, worker: WorkerId, turn: Turn) -> Result<Turned, StoreError> {
        let turned = self.inner.turn(worker, turn).await?;
        if !turned.claimed.is_empty() && self.failed.fetch_add(1, Ordering::Relaxed) == 0 {
            self.stopped.notified().await;
        }
        Ok(turned)
    }
}

/// What goes to the store within, as it is.
macro_rules! pass_on {
    ($(fn $name:ident($($value:ident: $of:ty),*) -> $reply:ty;)*) => {
        $(fn $name(&self, $($value: $of),*) -> Reply<'_, $reply> { self.inner.$name($($value),*) })*
    };
}

impl Store for Faulty {
    fn turn(&self, worker: WorkerId, turn: Turn) -> Reply<'_, Turned> {
        match self.fault {
            Fault::Late => return Box::pin(self.turn_late(worker, turn)),
            Fault::Away if self.is(THERE) => return self.inner.turn(worker, turn),
            Fault::Away => return Box::pin(async { Err(lost()) }),
            Fault::Slow => return Box::pin(self.turn_slowly(worker, turn)),
            Fault::Hanging if self.hangs() => return Box::pin(std::future::pending()),
            Fault::Hanging => return self.inner.turn(worker, turn),
            Fault::Deaf | Fault::Unheard => return self.inner.turn(worker, turn),
            Fault::Before | Fault::After => {}
        }
        if self.turns.fetch_add(1, Ordering::Relaxed) % 3 != 2 {
            return self.inner.turn(worker, turn);
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match self.fault {
                Fault::After => self.inner.turn(worker, turn).await.and_then(|_| Err(lost())),
                _ => Err(lost()),
            }
        })
    }

    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId> {
        if self.hangs() {
            self.stopped.notify_one();
            return Box::pin(std::future::pending());
        }
        if self.is(AWAY) {
            self.away.store(BACK_FOR_BEATS, Ordering::Relaxed);
        }
        if self.is(THERE) || self.failed.fetch_add(1, Ordering::Relaxed) >= VAIN {
            self.away.store(THERE, Ordering::Relaxed);
            return self.inner.register(worker);
        }
        Box::pin(async { Err(lost()) })
    }

    fn leave(&self, worker: WorkerId) -> Reply<'_, ()> {
        match self.fault {
            Fault::Hanging if self.hangs() => Box::pin(std::future::pending()),
            Fault::Unheard => Box::pin(async { Err(lost()) }),
            _ => self.inner.leave(worker),
        }
    }

    fn beat(&self, worker: WorkerId) -> Reply<'_, bool> {
        if self.hangs() {
            return Box::pin(std::future::pending());
        }
        if self.is(AWAY) {
            return Box::pin(async { Err(lost()) });
        }
        self.late_beats.fetch_add(u32::from(self.is(BACK_FOR_BEATS)), Ordering::Relaxed);
        self.inner.beat(worker)
    }

    pass_on! {
        fn send(tasks: Vec<NewTask>) -> Vec<Sent>;
        fn reconcile(worker: WorkerId, known: Vec<i64>) -> u32;
        fn upkeep() -> Kept;
        fn wake_rested() -> Option<Duration>;
        fn set_cluster_cap(cap: Option<u32>) -> ();
        fn set_latest(is_latest: bool) -> ();
        fn set_queue(queue: QueueLimits) -> ();
        fn pause_queue(name: String, is_paused: bool) -> bool;
        fn change_key(key: String, change: KeyChange) -> ();
        fn look_at_key(key: String) -> Option<KeyLook>;
        fn queues_counted(most: u32) -> Vec<QueueLook>;
        fn cluster() -> (u32, Option<u32>);
        fn look_at_task(id: TaskId) -> Option<TaskLook>;
        fn cancel_all(ids: Vec<TaskId>) -> Vec<Cancelled>;
        fn cancelled(among: Vec<TaskId>) -> Vec<TaskId>;
        fn dead(before: Option<TaskId>, most: u32) -> Vec<TaskLook>;
        fn revive(id: TaskId) -> bool;
        fn holders(of: Of, most: u32) -> Vec<Holder>;
        fn line(of: Of, most: u32) -> Vec<TaskLook>;
        fn standing(id: TaskId) -> Option<Standing>;
        fn workers() -> Vec<WorkerLook>;
        fn audit() -> Vec<String>;
    }

    fn offer(&self, offer: Offer) -> Option<Offered> {
        self.inner.offer(offer)
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        if matches!(self.fault, Fault::Deaf) { self.wakes.subscribe() } else { self.inner.wakes() }
    }
}

/// A worker on this store whose tasks never end by themselves. Drop what is given to end it.
fn endless(store: &Arc<Faulty>) -> oneshot::Sender<()> {
    let handlers = Handlers::new().otherwise(|_, _| std::future::pending());
    let options = WorkerOptions { processes: 1, ..WorkerOptions::default() };
    let worker = Worker::new(Arc::clone(store) as Arc<dyn Store>, handlers, options).expect("a worker");
    let (end, asked) = oneshot::channel::<()>();
    tokio::spawn(worker.run(async move { drop(asked.await) }));
    end
}

/// Waits until a task is held.
async fn is_held(kit: &Kit, id: TaskId) {
    let held = async {
        while kit.store.holders(Of::All, 9).await.expect("a look").iter().all(|holder| holder.id != id) {
            flowgate_testkit::between_looks().await;
        }
    };
    timeout(DEADLINE, held).await.expect("it is claimed in time");
}

/// Waits until a task is cancelled.
async fn is_cancelled(kit: &Kit, id: TaskId) {
    let cancelled = async {
        while kit.reason(id).await.as_deref() != Some("cancelled") {
            flowgate_testkit::between_looks().await;
        }
    };
    timeout(DEADLINE, cancelled).await.expect("it is stopped in time");
}

/// Waits until a task is as it should be.
async fn is_in(kit: &Kit, id: TaskId, is_it: impl Fn(&State) -> bool) {
    let there = async {
        while !kit.state(id).await.is_some_and(|state| is_it(&state)) {
            flowgate_testkit::between_looks().await;
        }
    };
    timeout(DEADLINE, there).await.expect("it comes to that in time");
}

/// Waits until a task has ended that keeps no result.
async fn is_gone(kit: &Kit, id: TaskId) {
    let gone = async {
        while kit.state(id).await.is_some() {
            flowgate_testkit::between_looks().await;
        }
    };
    timeout(DEADLINE, gone).await.expect("it ends in time");
}

async fn pause(kit: &Kit, is_key: bool, is_paused: bool) {
    match is_key {
        true => kit.change_key("k", if is_paused { KeyChange::Pause } else { KeyChange::Resume }).await,
        false => {
            let known = kit.store.pause_queue("soft".to_owned(), is_paused).await.expect("a pause");
            assert!(known, "there is such a queue");
        }
    }
}

/// A worker of one slot that has one task at hand for an hour.
struct Soft {
    /// Lets the first task end.
    go_on: Arc<Notify>,
    end: oneshot::Sender<()>,
    worker: tokio::task::JoinHandle<Result<flowgate_tasks::worker::Ending, StoreError>>,
}

impl Soft {
    async fn end(self) {
        drop(self.end);
        timeout(DEADLINE, self.worker).await.expect("it ends").expect("no panic").expect("and well");
    }
}

fn soft(store: &Arc<dyn Store>, first: TaskId) -> Soft {
    let go_on = Arc::<Notify>::default();
    let waits = Arc::clone(&go_on);
    let handlers = Handlers::new().otherwise(move |context, _| {
        let waits = Arc::clone(&waits);
        async move {
            if context.id == first {
                waits.notified().await;
            }
            Ok(Vec::new())
        }
    });
    let prefetch = Some(Prefetch { buffer: 1, lease: Duration::from_secs(3600) });
    let options = WorkerOptions { processes: 1, prefetch, ..WorkerOptions::default() };
    let worker = Worker::new(Arc::clone(store), handlers, options).expect("a worker");
    let (end, asked) = oneshot::channel::<()>();
    Soft { go_on, end, worker: tokio::spawn(worker.run(async move { drop(asked.await) })) }
}

/// Runs tasks on a store that fails, until each has run, and gives how often each of them did.
async fn runs(kit: &Kit, fault: Fault) -> BTreeMap<usize, u32> {
    let task = |number: usize| NewTask::new("count", number.to_string().into_bytes());
    kit.send_all((0..TASKS).map(task).collect()).await;
    let store = Faulty::new(kit, fault);
    let (told, mut ran) = mpsc::channel(TASKS);
    let handlers = Handlers::new().on("count", move |number: usize| {
        let told = told.clone();
        async move {
            told.send(number).await.expect("somebody listens");
            Ok::<(), Infallible>(())
        }
    });
    let options = WorkerOptions { processes: 8, ..WorkerOptions::default() };
    let (end, asked) = oneshot::channel::<()>();
    let worker = Worker::new(Arc::clone(&store) as Arc<dyn Store>, handlers, options).expect("a worker");
    let worker = tokio::spawn(worker.run(async move { drop(asked.await) }));
    let mut runs = BTreeMap::new();
    while runs.len() < TASKS {
        let number = timeout(DEADLINE, ran.recv()).await.expect("each of them runs").expect("it is told");
        *runs.entry(number).or_default() += 1;
    }
    drop(end);
    timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
    while let Ok(number) = ran.try_recv() {
        *runs.entry(number).or_default() += 1;
    }
    assert!(store.failed.load(Ordering::Relaxed) > 2, "turns failed");
    assert!(kit.worker().await.claim(9).await.is_empty(), "nothing is left to run again");
    runs
}

/// Says so when it is dropped.
struct Stops(Arc<Faulty>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.stopped.notify_one();
    }
}

on_every_store! {
    #[test]
    async fn t7_a_cancellation_that_a_worker_did_not_hear_is_found(kit: &Kit) {
        // Seen to fail: with a worker that looks for work alone when it is behind, the task ran for ever.
        for missed in [vec![Wake::Work, Wake::Work], vec![Wake::Missed]] {
            let store = Faulty::new(kit, Fault::Deaf);
            let end = endless(&store);
            let id = kit.send(NewTask::new("endless", Vec::new())).await;
            is_held(kit, id).await;
            assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Running);
            // Two at once are more than the one that it may be behind.
            missed.iter().for_each(|wake| drop(store.wakes.send(*wake)));
            is_cancelled(kit, id).await;
            drop(end);
        }
        let sent = kit.send(NewTask::new("endless", Vec::new())).await;
        assert_eq!(kit.store.cancelled(vec![sent]).await.expect("a look"), [], "nobody cancelled that one");
    }

    #[test]
    async fn t7_a_cancellation_that_overtakes_the_claim_is_obeyed(kit: &Kit) {
        // Seen to fail: with one of a task that is not known here forgotten, the task ran for ever.
        let store = Faulty::new(kit, Fault::Slow);
        let mut wakes = kit.store.wakes();
        let id = kit.send(NewTask::new("endless", Vec::new())).await;
        let _end = endless(&store);
        is_held(kit, id).await;
        assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Running);
        while wakes.recv().await.expect("a wake-up") != Wake::Cancel(id) {}
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        store.stopped.notify_one();
        is_cancelled(kit, id).await;
    }

    #[test]
    async fn t1_a_run_that_is_stopped_while_the_store_hears_of_it_holds_no_slot(kit: &Kit) {
        // Seen to fail: with what `told` says not looked at, the store had the second task for running, and nobody ran it.
        let sent = kit.send_all(vec![NewTask::new("one", Vec::new()), NewTask::new("one", Vec::new())]).await;
        let (store, second) = (Faulty::new(kit, Fault::Late), sent[1]);
        let (told, mut ran) = mpsc::channel(2);
        let (faulty, is_first) = (Arc::clone(&store), Arc::new(AtomicU32::new(0)));
        let handlers = Handlers::new().on_bytes("one", move |context, _| {
            let (told, faulty, is_first) = (told.clone(), Arc::clone(&faulty), Arc::clone(&is_first));
            async move {
                if context.id != second {
                    faulty.is_at_hand.notified().await;
                } else if is_first.fetch_add(1, Ordering::Relaxed) == 0 {
                    let _stops = Stops(faulty);
                    std::future::pending::<()>().await;
                }
                told.send(context.id).await.expect("somebody listens");
                Ok(Vec::new())
            }
        });
        let prefetch = Some(Prefetch { buffer: 1, lease: Duration::from_secs(4) });
        let options = WorkerOptions { processes: 1, prefetch, ..WorkerOptions::default() };
        let (end, asked) = oneshot::channel::<()>();
        let worker = Worker::new(Arc::clone(&store) as Arc<dyn Store>, handlers, options).expect("a worker");
        let worker = tokio::spawn(worker.run(async move { drop(asked.await) }));
        for id in sent {
            let next = timeout(DEADLINE, ran.recv()).await.expect("each of them runs");
            assert_eq!(next, Some(id));
        }
        drop(end);
        timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
    }

    #[test]
    async fn t1_what_is_at_hand_goes_back_when_its_queue_or_key_is_paused(kit: &Kit) {
        // Seen to fail: with `Wake::Limits` not listened to, it stayed at hand, and started there when the first had ended.
        let queue = |task: NewTask| task.queue("soft");
        let key = |task: NewTask| task.key("k").limits(max(1));
        for (of, is_key) in [(&queue as &dyn Fn(NewTask) -> NewTask, false), (&key, true)] {
            let first = of(NewTask::new("one", Vec::new()));
            let second = of(NewTask::new("one", Vec::new())).keep_result(LEASE * 3600);
            let sent = kit.send_all(vec![first, second]).await;
            let worker = soft(&kit.store, sent[0]);
            is_in(kit, sent[1], |state| matches!(state, State::Held { is_at_hand: true, .. })).await;
            pause(kit, is_key, true).await;
            is_in(kit, sent[1], |state| matches!(state, State::Waiting { .. })).await;
            worker.go_on.notify_one();
            is_gone(kit, sent[0]).await;
            assert!(matches!(kit.state(sent[1]).await, Some(State::Waiting { .. })), "it is paused");
            pause(kit, is_key, false).await;
            is_in(kit, sent[1], |state| matches!(state, State::Done { .. })).await;
            worker.end().await;
        }
    }

    #[test]
    async fn t1_a_pause_that_overtakes_a_claim_ahead_is_obeyed(kit: &Kit) {
        // Seen to fail: with what changed during a turn not looked at when it ends, it was at hand in a queue that was paused.
        let task = || NewTask::new("one", Vec::new()).queue("soft");
        let sent = kit.send_all(vec![task(), task()]).await;
        let store = Faulty::new(kit, Fault::Slow);
        let mut wakes = kit.store.wakes();
        let worker = soft(&(Arc::clone(&store) as Arc<dyn Store>), sent[0]);
        is_held(kit, sent[1]).await;
        pause(kit, false, true).await;
        while !matches!(wakes.recv().await.expect("a wake-up"), Wake::Limits(None)) {}
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        store.stopped.notify_one();
        is_in(kit, sent[1], |state| matches!(state, State::Waiting { .. })).await;
        worker.go_on.notify_one();
        is_gone(kit, sent[0]).await;
        worker.end().await;
    }

    #[test]
    async fn t5_a_lease_that_was_over_is_not_renewed_when_the_store_is_back(kit: &Kit) {
        // Seen to fail: with the beats of the old lease going on until there is a new one, they kept it, and the slot
        // of a task that nobody ran.
        kit.send(NewTask::new("one", Vec::new()).key("k").limits(max(1))).await;
        let store = Faulty::new(kit, Fault::Away);
        let (told, mut ran) = mpsc::channel(1);
        let (faulty, is_first) = (Arc::clone(&store), Arc::new(AtomicU32::new(0)));
        let handlers = Handlers::new().on_bytes("one", move |_, _| {
            let (told, faulty, is_first) = (told.clone(), Arc::clone(&faulty), Arc::clone(&is_first));
            async move {
                if is_first.fetch_add(1, Ordering::Relaxed) == 0 {
                    faulty.away.store(AWAY, Ordering::Relaxed);
                    let _stops = Stops(faulty);
                    std::future::pending::<()>().await;
                }
                told.send(()).await.expect("somebody listens");
                Ok(Vec::new())
            }
        });
        let options = WorkerOptions { processes: 1, lease: LEASE, ..WorkerOptions::default() };
        let (end, asked) = oneshot::channel::<()>();
        let worker = Worker::new(Arc::clone(&store) as Arc<dyn Store>, handlers, options).expect("a worker");
        let worker = tokio::spawn(worker.run(async move { drop(asked.await) }));
        timeout(DEADLINE, store.stopped.notified()).await.expect("it is stopped when the lease is over");
        // What the first lease held is for others when that is over in the store, too.
        while timeout(LEASE, ran.recv()).await.is_err() {
            assert_eq!(store.late_beats.load(Ordering::Relaxed), 0, "the old lease is renewed");
            kit.advance(LEASE / 2);
        }
        drop(end);
        timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
        assert_eq!(kit.key_in_use("k").await, 0);
    }

    #[test]
    async fn t5_a_worker_ends_though_its_store_hangs(kit: &Kit) {
        // Seen to fail: with a new lease asked for when the old one was over, it never ended; nor with `leave` waited
        // for without end; nor, where a new lease was asked for before it was told to end, with nothing else heard
        // until there is one.
        for is_without_lease in [false, true] {
            kit.send(NewTask::new("one", Vec::new())).await;
            let store = Faulty::new(kit, Fault::Hanging);
            let faulty = Arc::clone(&store);
            let (end, asked) = oneshot::channel::<()>();
            let end = std::sync::Mutex::new(Some(end));
            let handlers = Handlers::new().on_bytes("one", move |_, _| {
                faulty.away.store(AWAY, Ordering::Relaxed);
                drop(end.lock().expect("no panic").take());
                async { Ok(Vec::new()) }
            });
            let options = WorkerOptions { processes: 1, lease: LEASE, ..WorkerOptions::default() };
            let worker = Worker::new(Arc::clone(&store) as Arc<dyn Store>, handlers, options).expect("a worker");
            let worker = tokio::spawn(worker.run(async move {
                drop(asked.await);
                if is_without_lease {
                    store.stopped.notified().await;
                }
            }));
            let ending = timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
            assert_eq!(ending.settled, 0, "nobody said that its end was heard");
            // What it held is for the next when its lease is over in the store, too.
            kit.advance(LEASE * 2);
            kit.store.upkeep().await.expect("upkeep");
        }
    }

    #[test]
    async fn t7_a_worker_that_cannot_say_that_it_leaves_ends_well_and_tells_all_it_did(kit: &Kit) {
        // Seen to fail: with a failed `leave` returned in the place of what was settled, and before all news was told.
        let (done, fails) = (NewTask::new("done", Vec::new()), NewTask::new("fails", Vec::new()));
        let once = Retry { max_attempts: 1, ..Retry::default() };
        let sent = kit.store.send(vec![done, fails.retry(once)]).await.expect("sent");
        let (ran, mut runs) = mpsc::channel(2);
        let handlers = Handlers::new().otherwise(move |context, _| {
            let ran = ran.clone();
            async move {
                ran.send(()).await.expect("somebody listens");
                if &*context.kind == "fails" { Err(Failure::new("it cannot")) } else { Ok(Vec::new()) }
            }
        });
        let told = Arc::<std::sync::Mutex<Vec<String>>>::default();
        let hears = Arc::clone(&told);
        let store: Arc<dyn Store> = Faulty::new(kit, Fault::Unheard);
        let worker = Worker::new(store, handlers, WorkerOptions::default()).expect("a worker");
        let worker = worker.listen(move |news| hears.lock().expect("whole").push(news.to_string()));
        let running = worker.run(async move {
            for _ in 0..2 {
                runs.recv().await.expect("it runs");
            }
        });
        let ending = timeout(DEADLINE, running).await.expect("it ends").expect("and well");
        assert_eq!((ending.settled, ending.lost), (2, 0));
        let told = told.lock().expect("whole").clone();
        let dead = format!("task {} of queue default is dead after 1 attempt: it cannot", sent[1].id);
        let unheard = "the store did not hear that this worker has ended, and finds out when its lease is over: the store failed \
            while asking: the connection is gone";
        assert_eq!(told, [dead.as_str(), unheard]);
    }

    #[test]
    async fn t5_what_had_ended_is_not_run_again_when_its_turn_fails(kit: &Kit) {
        // Seen to fail: with the known leases asked for after what had ended was taken out, it stood in line again.
        let runs = runs(kit, Fault::Before).await;
        assert!(runs.values().all(|&times| times == 1), "{runs:?}");
    }

    #[test]
    async fn t5_everything_runs_once_when_replies_are_lost(kit: &Kit) {
        // Seen to fail: without comparing leases after a turn that failed, what it had claimed never ran.
        let runs = runs(kit, Fault::After).await;
        assert!(runs.values().all(|&times| times == 1), "{runs:?}");
    }
}
