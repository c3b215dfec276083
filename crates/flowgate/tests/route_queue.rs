//! R7: a durable queue at either end of a route, on both stores.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use flowgate::{
    Code,
    route::{
        Concurrency, Context, Error, Feed, Intake, Queue, Retry, Route, Source, direct, direct_to, queue,
    },
};
use flowgate_tasks::{
    NewTask, Retry as TaskRetry,
    store::{KeyChange, Of, Postgres, QueueLook, Sqlite, State, Store},
    worker::WorkerOptions,
};
use flowgate_testkit::FakeClock;
use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::Semaphore, time::timeout};

/// Longer than anything here may take, however busy the machine: so that what never comes fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a law on SQLite and on PostgreSQL.
async fn on_both<F: Future<Output = ()>>(name: &str, law: impl Fn(Arc<dyn Store>) -> F) {
    in_time(law(Arc::new(Sqlite::in_memory().expect("a store in memory")))).await;
    let url = flowgate_testkit::postgres::Postgres::shared().create_database(name).expect("a database");
    in_time(law(Arc::new(Postgres::connect(&url).await.expect("a store")))).await;
}

async fn in_time<T>(law: impl Future<Output = T>) -> T {
    timeout(PATIENCE, law).await.expect("it ends")
}

async fn look(store: &Arc<dyn Store>) -> QueueLook {
    let queues = store.queues().await.expect("queues");
    queues.into_iter().find(|queue| queue.limits.name == "jobs").expect("the queue")
}

/// Waits until the queue has so many in line and so many held.
async fn until(store: &Arc<dyn Store>, waiting: u64, held: u32) {
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    loop {
        let seen = look(store).await;
        if (seen.waiting, seen.in_use) == (waiting, held) {
            return;
        }
        pace.tick().await;
    }
}

async fn send(store: &Arc<dyn Store>, count: u32) {
    let task = |number: u32| NewTask::json("jobs", &number).expect("a number").queue("jobs");
    store.send((0..count).map(task).collect()).await.expect("they are stored");
}

/// Counts how many run at once, and lets them end one by one.
#[derive(Clone)]
struct Work {
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    leave: Arc<Semaphore>,
}

impl Work {
    fn new() -> Self {
        Work { running: Arc::default(), most: Arc::default(), leave: Arc::new(Semaphore::new(0)) }
    }

    async fn run(&self, body: u32) -> Result<u32, Error> {
        struct Count(Arc<AtomicU32>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _count = Count(Arc::clone(&self.running));
        self.most.fetch_max(now, Ordering::SeqCst);
        self.leave.acquire().await.expect("it is never closed").forget();
        Ok(body)
    }
}

fn started(route: &Route<u32, u32>) -> Context {
    let context = Context::new();
    context.add(route).expect("a route");
    context.start().expect("it starts");
    context
}

/// The seed's bounded pipeline.
fn pipeline(jobs: Queue<u32>, max: u32, work: &Work) -> Route<u32, u32> {
    let work = work.clone();
    let step = move |body: u32| {
        let work = work.clone();
        async move { work.run(body).await }
    };
    Route::new("bounded-pipeline")
        .concurrency(Concurrency::max(max))
        .from(jobs)
        .to(step)
        .build()
        .expect("a route")
}

#[tokio::test]
async fn r7_the_claims_of_a_queue_are_the_slots_of_the_route() {
    // Seen to fail: with the worker's own default for the route's bound, 2 were held and never 10.
    on_both("slots", |store| async move {
        send(&store, 25).await;
        let work = Work::new();
        let context = started(&pipeline(queue("jobs", Arc::clone(&store)), 10, &work));
        until(&store, 15, 10).await;
        while work.running.load(Ordering::SeqCst) < 10 {
            tokio::task::yield_now().await;
        }
        work.leave.add_permits(25);
        until(&store, 0, 0).await;
        assert_eq!(work.most.load(Ordering::SeqCst), 10);
        assert_eq!(context.shutdown(Duration::from_secs(5)).await.cancelled, []);
    })
    .await;
}

#[tokio::test]
async fn r7_one_route_fills_what_another_empties() {
    // Seen to fail: with the body sent as another kind than the source takes, nothing arrived.
    on_both("both_ends", |store| async move {
        let jobs =
            queue::<u32>("jobs", Arc::clone(&store)).task(|task, body| task.key(format!("key-{body}")));
        store.change_key("key-9".to_owned(), KeyChange::Pause).await.unwrap();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = {
            let kept = Arc::clone(&kept);
            move |body: u32| {
                kept.lock().unwrap().push(body);
                std::future::ready(Ok::<_, Error>(body))
            }
        };
        let context = Context::new();
        let fill = Route::new("fill").from(direct()).to(jobs.clone()).build().unwrap();
        context.add(&fill).unwrap();
        context.add(&Route::new("empty").from(jobs).to(keep).build().unwrap()).unwrap();
        context.start().unwrap();
        let fill = context.direct::<u32, u32>("fill").unwrap();
        for body in [7, 8, 9] {
            assert_eq!(fill.call(body).await.unwrap(), body, "the body goes on");
        }
        until(&store, 1, 0).await;
        kept.lock().unwrap().sort_unstable();
        assert_eq!(*kept.lock().unwrap(), [7, 8], "the third waits: its key is paused");
        store.change_key("key-9".to_owned(), KeyChange::Resume).await.unwrap();
        until(&store, 0, 0).await;
        assert_eq!(*kept.lock().unwrap(), [7, 8, 9]);
        context.shutdown(Duration::from_secs(5)).await;
    })
    .await;
}

#[tokio::test]
async fn r7_what_fails_is_tried_again_unless_that_cannot_help() {
    // Seen to fail: with every failure tried again, the first had three attempts; with none, the second was on the dead list.
    on_both("failures", |store| async move {
        let retry = TaskRetry { max_attempts: 3, backoff: Duration::ZERO, ..TaskRetry::default() };
        let task = |number: u32| NewTask::json("jobs", &number).unwrap().queue("jobs").retry(retry);
        let sent = store.send(vec![task(0), task(1)]).await.unwrap();
        let tries = Arc::new(AtomicU32::new(0));
        let step = {
            let tries = Arc::clone(&tries);
            move |body: u32| {
                let is_again = body == 1 && tries.fetch_add(1, Ordering::SeqCst) > 0;
                let failed = || Err(Error::of("no").retryable(body == 1));
                std::future::ready(if is_again { Ok(body) } else { failed() })
            }
        };
        let jobs = queue::<u32>("jobs", Arc::clone(&store));
        let context = started(&Route::new("fails").from(jobs).to(step).build().unwrap());
        until(&store, 0, 0).await;
        let dead = store.dead(None, 9).await.unwrap();
        assert_eq!(dead.iter().map(|task| (task.id, task.attempt)).collect::<Vec<_>>(), [(sent[0].id, 1)]);
        assert!(matches!(&dead[0].state, State::Dead { error, .. } if error.contains("RC5001: no")));
        assert_eq!(tries.load(Ordering::SeqCst), 2);
        context.shutdown(Duration::from_secs(5)).await;
    })
    .await;
}

/// Takes its time to open: looks at the queue so often.
struct Slow(Arc<dyn Store>);

impl Source<u32> for Slow {
    type Body = u32;

    fn open(&self, _: Intake<u32, u32>) -> Result<Feed, Error> {
        let looks = async {
            for _ in 0..50 {
                look(&self.0).await;
            }
        };
        tokio::task::block_in_place(|| Handle::current().block_on(looks));
        Ok(Feed::none())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_a_queue_is_worked_on_when_all_routes_are_there() {
    // Seen to fail: with the worker started as its source is opened, it sent to a route that was not there yet, and its task was
    // dead.
    let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().unwrap());
    send(&store, 1).await;
    let context = Context::new();
    let jobs = queue::<u32>("jobs", Arc::clone(&store));
    context.add(&Route::new("jobs").from(jobs).to(direct_to::<u32, u32>("last")).build().unwrap()).unwrap();
    let slow = Route::new("slow").from(Slow(Arc::clone(&store))).transform(|body: u32| body);
    context.add(&slow.build().unwrap()).unwrap();
    let last = Route::new("last").from(direct()).transform(|body: u32| body);
    context.add(&last.build().unwrap()).unwrap();
    context.start().unwrap();
    in_time(until(&store, 0, 0)).await;
    assert_eq!(store.dead(None, 9).await.unwrap().len(), 0);
    context.shutdown(Duration::from_secs(5)).await;
}

#[test]
fn r7_a_queue_outside_of_a_runtime_is_told_so() {
    // Seen to fail: with the worker started as its source is opened, `start` panicked.
    let jobs = queue::<u32>("jobs", Arc::new(Sqlite::in_memory().unwrap()));
    let context = Context::new();
    context.add(&Route::new("jobs").from(jobs).transform(|body: u32| body).build().unwrap()).unwrap();
    assert_eq!(context.start().unwrap_err().code(), Code::NotStarted);
}

#[tokio::test]
async fn r8_shutdown_settles_what_ends_and_gives_back_what_is_cancelled() {
    // Seen to fail: with the worker dropped together with its feed, nobody was left to settle what had ended.
    on_both("stops", |store| async move {
        send(&store, 5).await;
        let (clock, work) = (FakeClock::new(), Work::new());
        let context = Context::builder().clock(clock.clone()).build();
        context.add(&pipeline(queue("jobs", Arc::clone(&store)), 2, &work)).unwrap();
        context.start().unwrap();
        until(&store, 3, 2).await;
        let mut shutdown = Box::pin(context.shutdown(Duration::from_secs(120)));
        assert!((&mut shutdown).now_or_never().is_none(), "two are under way");
        work.leave.add_permits(1);
        until(&store, 3, 1).await;
        clock.advance(Duration::from_secs(120));
        let report = shutdown.await;
        assert_eq!(report.cancelled.len(), 1, "one had the time to end");
        let held = store.holders(Of::All, 9).await.unwrap();
        assert_eq!(
            (held.len(), look(&store).await.waiting),
            (0, 4),
            "one is done, and the others wait for another process"
        );
        assert_eq!(store.workers().await.unwrap().len(), 0, "the worker has left");
    })
    .await;
}

#[tokio::test]
async fn r8_a_queue_drains_for_as_long_as_the_context_says_and_names_what_was_cut_off() {
    // Seen to fail: with the worker's own drain, it stopped all three at once, and the report would have been clean.
    on_both("drains", |store| async move {
        let once = TaskRetry { max_attempts: 1, ..TaskRetry::default() };
        let task = |number: u32| NewTask::json("jobs", &number).unwrap().queue("jobs");
        let sent = store.send(vec![task(0), task(1), task(2).retry(once)]).await.unwrap();
        let (clock, work) = (FakeClock::new(), Work::new());
        let context = Context::builder().clock(clock.clone()).build();
        let worker = WorkerOptions { drain: Duration::ZERO, ..WorkerOptions::default() };
        context.add(&pipeline(queue("jobs", Arc::clone(&store)).worker(worker), 3, &work)).unwrap();
        context.start().unwrap();
        while work.running.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        let context = Arc::new(context);
        let stopping = tokio::spawn({
            let context = Arc::clone(&context);
            async move { context.shutdown(Duration::from_secs(120)).await }
        });
        // The worker hears of it meanwhile.
        for _ in 0..50 {
            look(&store).await;
        }
        assert_eq!(work.running.load(Ordering::SeqCst), 3, "they may go on");
        work.leave.add_permits(1);
        until(&store, 0, 2).await;
        clock.advance(Duration::from_secs(120));
        assert_eq!(stopping.await.unwrap().cancelled.len(), 2);
        // A run that is cut off is an attempt, as where a process dies.
        let dead: Vec<_> = store.dead(None, 9).await.unwrap().iter().map(|task| task.id).collect();
        assert_eq!((dead, look(&store).await.waiting), (vec![sent[2].id], 1));
    })
    .await;
}

#[tokio::test]
async fn r8_what_was_claimed_and_had_not_begun_when_all_was_cancelled_goes_back_as_it_was() {
    // Seen to fail: with the exchange begun all the same, it used up the only attempt of its task, which was dead.
    let once = TaskRetry { max_attempts: 1, ..TaskRetry::default() };
    let (mut begun, mut moment) = (0, 0);
    // The end comes at every moment between the start of the worker and that of its task: by small steps at first, and by ever
    // larger ones where the store takes its time.
    let ends = async {
        while begun < 3 {
            let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().unwrap());
            store.send(vec![NewTask::json("jobs", &1).unwrap().queue("jobs").retry(once)]).await.unwrap();
            let work = Work::new();
            let context = started(&pipeline(queue("jobs", Arc::clone(&store)), 1, &work));
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            let report = context.shutdown(Duration::ZERO).await;
            let has_begun = work.most.load(Ordering::SeqCst) as usize;
            begun += has_begun;
            let dead = store.dead(None, 9).await.unwrap().len();
            assert_eq!((report.cancelled.len(), dead), (has_begun, has_begun), "at moment {moment}");
            moment += 4.max(moment / 16);
        }
    };
    in_time(ends).await;
}

#[tokio::test]
async fn r7_a_bound_above_what_a_worker_can_claim_is_a_bound_all_the_same() {
    // Seen to fail: with the bound handed to the worker as it is, `start` spoke of an option `processes` that nobody had set.
    let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().unwrap());
    let context = started(&pipeline(queue("jobs", store), 200_000, &Work::new()));
    assert!(context.shutdown(Duration::from_secs(5)).await.is_clean());
}

#[tokio::test]
async fn r7_a_retry_of_the_route_comes_before_one_of_the_task() {
    // Seen to fail: without the route's own retry, the task had two attempts.
    on_both("retries", |store| async move {
        send(&store, 1).await;
        let tries = Arc::new(AtomicU32::new(0));
        let step = {
            let tries = Arc::clone(&tries);
            move |body: u32| {
                let is_first = tries.fetch_add(1, Ordering::SeqCst) == 0;
                std::future::ready(if is_first { Err(Error::of("once").retryable(true)) } else { Ok(body) })
            }
        };
        let jobs = queue::<u32>("jobs", Arc::clone(&store));
        let retry = Retry::new().max_attempts(2).backoff(Duration::from_millis(1));
        let context = started(&Route::new("again").retry(retry).from(jobs).to(step).build().unwrap());
        until(&store, 0, 0).await;
        assert_eq!((tries.load(Ordering::SeqCst), store.dead(None, 9).await.unwrap().len()), (2, 0));
        context.shutdown(Duration::from_secs(5)).await;
    })
    .await;
}
