//! Turns of a worker on a store in memory, one by one.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::timeout;

use super::*;
use crate::{
    store::{MOST_BYTES, QueueLimits, Sqlite, State},
    task::{NewTask, Retry, When},
    worker::Prefetch,
};

// Seen to fail: with its processes told, it had three slots that it never uses.
#[tokio::test]
async fn t8_a_worker_is_known_by_what_it_may_claim() {
    let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
    let options = WorkerOptions { processes: 4, max_claim_per_worker: 1, ..WorkerOptions::default() };
    let (teller, _telling) = Teller::start(None, &store);
    let _taken = Lease::take(&store, &options, &teller).await.expect("a lease");
    assert_eq!(store.workers().await.expect("a look")[0].slots, 1);
}

// Seen to fail: without the look at the lease in `end_turn`, the task ran.
#[tokio::test]
async fn t5_what_was_claimed_under_a_lease_that_is_over_does_not_start() {
    let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
    store.send(vec![NewTask::new("one", Vec::new())]).await.expect("sent");
    for (lease, runs) in [(Duration::from_nanos(1), 0), (Duration::from_secs(600), 1)] {
        let options = WorkerOptions { lease, ..WorkerOptions::default() };
        let (teller, _telling) = Teller::start(None, &store);
        let taken = Lease::take(&store, &options, &teller).await.expect("a lease");
        let mut desk = Desk::open(Arc::clone(&store), Handlers::new(), options, taken, teller);
        desk.begin_turn();
        let turned = pending_turn(&mut desk.turn).await;
        assert_eq!(turned.as_ref().expect("a turn").claimed.len(), 1, "the store has not noticed");
        let late = desk.worker;
        desk.end_turn(turned).await.expect("an end");
        assert_eq!(desk.held.len(), runs);
        store.leave(late).await.expect("it is back in line");
    }
}

// Seen to fail: with `None` for the moment by which a claimed task has to begin, it ran.
#[tokio::test]
async fn t6_what_expired_while_its_claim_was_on_its_way_does_not_start() {
    let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
    let task = NewTask::new("one", Vec::new()).good_until(When::After(Duration::from_secs(60)));
    let id = store.send(vec![task]).await.expect("sent")[0].id;
    let options = WorkerOptions::default();
    let (teller, _telling) = Teller::start(None, &store);
    let taken = Lease::take(&store, &options, &teller).await.expect("a lease");
    let mut desk = Desk::open(Arc::clone(&store), Handlers::new(), options, taken, teller);
    for is_late in [true, false] {
        desk.look();
        desk.begin_turn();
        let turned = pending_turn(&mut desk.turn).await;
        if let Some(turn) = desk.turn.as_mut().filter(|_| is_late) {
            turn.asked -= Duration::from_secs(61);
        }
        desk.end_turn(turned).await.expect("an end");
        assert_eq!((desk.held.running(), desk.held.len()), (usize::from(!is_late), 1));
        if is_late {
            let settles = desk.held.take_ended();
            store.turn(desk.worker, Turn { settles, ..Turn::default() }).await.expect("a turn");
            let look = store.look_at_task(id).await.expect("a look").expect("it is there");
            assert_eq!((look.state, look.attempt), (State::Waiting { ahead: 0 }, 0), "as it was");
        }
    }
}

// Seen to fail: without the look at the lease in `replace`, it ran.
#[tokio::test]
async fn t1_what_was_claimed_ahead_under_a_lease_that_is_over_does_not_start() {
    for is_over in [false, true] {
        let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
        let task = || NewTask::new("one", Vec::new());
        store.send(vec![task(), task()]).await.expect("sent");
        let lease = Duration::from_secs(600);
        let prefetch = Some(Prefetch { buffer: 1, lease });
        let options = WorkerOptions { processes: 1, lease, prefetch, ..WorkerOptions::default() };
        let (teller, _telling) = Teller::start(None, &store);
        let taken = Lease::take(&store, &options, &teller).await.expect("a lease");
        let handlers = Handlers::new().on_bytes("one", |_, _| async { Ok(Vec::new()) });
        let mut desk = Desk::open(Arc::clone(&store), handlers, options, taken, teller);
        desk.begin_turn();
        let turned = pending_turn(&mut desk.turn).await;
        desk.end_turn(turned).await.expect("an end");
        assert_eq!((desk.held.running(), desk.stock.len()), (1, 1));
        desk.held.next().await;
        if is_over {
            desk.lease.end();
        }
        desk.replace();
        assert_eq!(desk.held.running(), usize::from(!is_over));
    }
}

/// A worker at its desk, of which one slot is used, and these tasks.
async fn desk(tasks: usize, prefetch: u32, handlers: Handlers) -> (Arc<dyn Store>, Desk) {
    let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
    store.send((0..tasks).map(|_| NewTask::new("one", Vec::new())).collect()).await.expect("sent");
    let lease = Duration::from_secs(600);
    let prefetch = (prefetch > 0).then_some(Prefetch { buffer: prefetch, lease });
    let options = WorkerOptions { processes: 1, lease, prefetch, ..WorkerOptions::default() };
    let (teller, _telling) = Teller::start(None, &store);
    let taken = Lease::take(&store, &options, &teller).await.expect("a lease");
    (Arc::clone(&store), Desk::open(store, handlers, options, taken, teller))
}

fn endless() -> Handlers {
    Handlers::new().on_bytes("one", |_, _| std::future::pending())
}

async fn turn(desk: &mut Desk) {
    desk.begin_turn();
    let turned = pending_turn(&mut desk.turn).await;
    desk.end_turn(turned).await.expect("an end");
}

// Seen to fail: with all that a turn claimed started, one ran, and nothing would have stopped it.
#[tokio::test]
async fn t7_what_a_turn_claims_while_its_worker_is_stopped_goes_back_as_it_was() {
    let (store, mut desk) = desk(2, 1, endless()).await;
    desk.begin_turn();
    let turned = pending_turn(&mut desk.turn).await;
    let claimed = turned.as_ref().map(|turned| (turned.claimed.len(), turned.ahead.len()));
    assert_eq!(claimed.expect("a turn"), (1, 1));
    desk.stop_at_once().await;
    desk.end_turn(turned).await.expect("an end");
    assert_eq!((desk.held.running(), desk.held.len(), desk.stock.len()), (0, 2, 0));
    turn(&mut desk).await;
    assert!(desk.is_done());
    for id in [TaskId(1), TaskId(2)] {
        let look = store.look_at_task(id).await.expect("a look").expect("it is there");
        assert_eq!((look.state, look.attempt), (State::Waiting { ahead: id.0 as u64 - 1 }, 0));
    }
}

// Seen to fail: with what the second stop found in the place of what the first did, nothing had been stopped.
#[tokio::test]
async fn t7_a_worker_that_is_stopped_twice_tells_all_that_it_stopped() {
    let (_store, mut desk) = desk(1, 0, endless()).await;
    turn(&mut desk).await;
    desk.close();
    desk.stop().await;
    desk.stop_at_once().await;
    assert_eq!(desk.end().stopped, [TaskId(1)]);
}

// Seen to fail: with `replace` before what is at hand goes back, it was started, and stopped at once.
#[tokio::test]
async fn t7_a_worker_that_is_stopped_at_once_starts_nothing_more() {
    let handlers = Handlers::new().on_bytes("one", |_, _| async { Ok(Vec::new()) });
    let (_store, mut desk) = desk(2, 1, handlers).await;
    turn(&mut desk).await;
    desk.held.next().await;
    assert_eq!((desk.held.running(), desk.stock.len()), (0, 1));
    desk.stop_at_once().await;
    assert_eq!((desk.held.len(), desk.stock.len()), (2, 0), "one has ended, one goes back");
    assert_eq!(desk.end().stopped, []);
}

// Seen to fail: with nothing doubted where an end was settled before, the second task stayed the worker's, and nobody ran it.
#[tokio::test]
async fn s1_a_worker_whose_end_was_settled_before_looks_for_what_it_does_not_know() {
    let handlers = Handlers::new().on_bytes("one", |_, _| async { Ok(Vec::new()) });
    let (store, mut desk) = desk(2, 0, handlers).await;
    desk.begin_turn();
    let turned = pending_turn(&mut desk.turn).await;
    let task = turned.as_ref().expect("a turn").claimed[0].clone();
    desk.end_turn(turned).await.expect("an end");
    desk.held.next().await;
    // As if a turn had been committed when all was given back that the worker did not know.
    let settles = vec![Settle { task, end: End::Done { result: Vec::new() } }];
    let want = Some(Want { slots: 1, per_queue: 1, with_locks: false });
    let turned = store.turn(desk.worker, Turn { settles, want, ..Turn::default() }).await.expect("a turn");
    assert_eq!(turned.claimed.len(), 1);
    turn(&mut desk).await;
    assert_eq!(desk.held.running(), 0, "the other one is the worker's already");
    desk.look();
    turn(&mut desk).await;
    assert_eq!(desk.held.running(), 1);
}

// Seen to fail: with nothing free, and so no turn, the task that the worker did not know of stayed its own.
#[tokio::test]
async fn s1_a_full_worker_gives_back_what_it_does_not_know() {
    let (store, mut desk) = desk(2, 0, endless()).await;
    turn(&mut desk).await;
    assert_eq!(desk.held.running(), 1, "it is full");
    // As if the reply to this one had been lost.
    let want = Some(Want { slots: 1, per_queue: 1, with_locks: false });
    let turned = store.turn(desk.worker, Turn { want, ..Turn::default() }).await.expect("a turn");
    assert_eq!(turned.claimed.len(), 1);
    desk.is_unsure = true;
    desk.begin_turn();
    assert!(desk.turn.is_some(), "there is a reason for one");
    let turned = pending_turn(&mut desk.turn).await;
    desk.end_turn(turned).await.expect("an end");
    let look = store.look_at_task(TaskId(2)).await.expect("a look").expect("it is there");
    assert_eq!((look.state, desk.held.running()), (State::Waiting { ahead: 0 }, 1));
}

// Seen to fail: with nothing but `leave`, the task was dead: its only attempt was taken for lost.
#[tokio::test]
async fn t7_what_a_worker_does_not_know_that_it_claimed_goes_back_as_it_was_when_it_leaves() {
    let (store, mut desk) = desk(0, 0, endless()).await;
    let once = NewTask::new("one", Vec::new()).retry(Retry { max_attempts: 1, ..Retry::default() });
    let id = store.send(vec![once]).await.expect("sent")[0].id;
    desk.close();
    // As if the reply to this one had been lost, and it was the last turn.
    let want = Some(Want { slots: 1, per_queue: 1, with_locks: false });
    let turned = store.turn(desk.worker, Turn { want, ..Turn::default() }).await.expect("a turn");
    assert_eq!(turned.claimed.len(), 1);
    desk.is_unsure = true;
    assert!(desk.is_done());
    desk.leave().await;
    let look = store.look_at_task(id).await.expect("a look").expect("it is there");
    assert_eq!((look.state, look.attempt), (State::Waiting { ahead: 0 }, 0));
}

// Seen to fail: with a free slot waited for, to lock with, there was no turn, and nothing was settled any more.
#[tokio::test]
async fn t4_a_full_worker_that_is_told_to_lock_settles_first() {
    let handlers = Handlers::new().on_bytes("one", |_, _| async { Ok(Vec::new()) });
    let (_store, mut desk) = desk(1, 0, handlers).await;
    turn(&mut desk).await;
    desk.wants_locks = true;
    desk.held.next().await;
    assert_eq!((desk.held.running(), desk.held.len()), (0, 1));
    desk.begin_turn();
    let turned = pending_turn(&mut desk.turn);
    let turned = timeout(GOODBYE, turned).await.expect("there is one");
    desk.end_turn(turned).await.expect("an end");
    assert_eq!((desk.ending.settled, desk.held.len()), (1, 0));
}

// Seen to fail: with every start told, the store found no place for the second, and it was stopped while it ran.
#[tokio::test]
async fn t1_a_start_is_told_with_the_end_that_made_room_for_it() {
    let (store, is_first) = (Arc::new(Sqlite::in_memory().expect("a store")), AtomicU32::new(0));
    let store: Arc<dyn Store> = store;
    store
        .set_queue(QueueLimits { name: "default".to_owned(), priority: 0, max: Some(3) })
        .await
        .expect("a queue");
    store.send((0..6).map(|_| NewTask::new("one", Vec::new())).collect()).await.expect("sent");
    // The first three end with much to write, the others do not end.
    let handlers = Handlers::new().on_bytes("one", move |_, _| {
        let ends = is_first.fetch_add(1, Ordering::Relaxed) < 3;
        async move { if ends { Ok(vec![0; MOST_BYTES]) } else { std::future::pending().await } }
    });
    let lease = Duration::from_secs(600);
    let prefetch = Some(Prefetch { buffer: 3, lease });
    let options = WorkerOptions { processes: 3, lease, prefetch, ..WorkerOptions::default() };
    let (teller, _telling) = Teller::start(None, &store);
    let taken = Lease::take(&store, &options, &teller).await.expect("a lease");
    let mut desk = Desk::open(store, handlers, options, taken, teller);
    turn(&mut desk).await;
    assert_eq!((desk.held.running(), desk.stock.len()), (3, 3));
    while desk.held.running() > 0 {
        desk.held.next().await;
    }
    desk.replace();
    while desk.held.len() > desk.held.running() {
        turn(&mut desk).await;
        assert_eq!((desk.held.running(), desk.ending.lost), (3, 0));
    }
    assert_eq!(desk.ending.settled, 3);
}
