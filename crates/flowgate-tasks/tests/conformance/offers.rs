//! Sends that claim for a worker of their own process (T4), on the store that does.

use std::{future::Future, time::Duration};

use flowgate_tasks::{
    NewTask, TaskId,
    store::{Again, Offer, Offered, State, StoreError, Turned, Wake},
};
use tokio_postgres::{Client, NoTls};

use crate::kit::{Kit, SECOND, Worker, done, ids, keyed, max, task};

const DEADLINE: Duration = Duration::from_secs(30);

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute("SET search_path TO flowgate").await.expect("the tables");
    client
}

fn offer(kit: &Kit, worker: &Worker, slots: u32) -> Offered {
    let offer = Offer { worker: worker.id, slots, per_queue: u32::MAX, queues: Vec::new() };
    kit.store.offer(offer).expect("this store takes offers")
}

/// Sends while the worker offers, and gives what came of both.
async fn send(kit: &Kit, worker: &Worker, slots: u32, tasks: Vec<NewTask>) -> (Vec<TaskId>, Turned) {
    let mut offered = offer(kit, worker, slots);
    let sent = kit.send_all(tasks).await;
    let turned = in_time(offered.answer()).await.expect("a claim");
    (sent, turned)
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

fn work(wakes: &mut tokio::sync::broadcast::Receiver<Wake>) -> usize {
    std::iter::from_fn(|| wakes.try_recv().ok()).filter(|wake| *wake == Wake::Work).count()
}

#[tokio::test]
async fn t4_a_send_claims_for_a_worker_that_offers() {
    // Seen to fail: with `left` empty in `Changes::of`, the audit found an idle lane with two tasks in it.
    let kit = Kit::postgres("offers_claims").await;
    let (worker, other) = (kit.worker().await, kit.worker().await);
    let mut wakes = kit.store.wakes();
    let (sent, turned) = send(&kit, &worker, 3, vec![task(), task(), keyed("key", max(1))]).await;
    let mut claimed = ids(&turned.claimed);
    claimed.sort();
    assert_eq!(claimed, sent);
    assert!(turned.claimed.iter().all(|task| task.attempt == 1));
    assert_eq!(kit.key_in_use("key").await, 1);
    assert_eq!(work(&mut wakes), 0, "nothing is left for others");
    kit.check().await;
    assert_eq!(other.claim(9).await.len(), 0);

    // Of three of a key one may start: the others wait, and all are woken.
    worker.done(turned.claimed).await;
    let (sent, turned) = send(&kit, &worker, 9, (0..3).map(|_| keyed("key", max(1))).collect()).await;
    assert_eq!(ids(&turned.claimed), sent[..1]);
    kit.check().await;
    assert_eq!(ids(&worker.swap(done(turned.claimed), 9).await), sent[1..2], "its key holds the next ones");

    // One more than it has slots for: the worker keeps its offer.
    let offered = offer(&kit, &worker, 1);
    let sent = kit.send_all(vec![task(), task()]).await;
    assert!(offered.withdraw());
    assert!(work(&mut wakes) > 0, "it is woken");
    assert_eq!(ids(&worker.claim(2).await), sent);
    kit.check().await;
}

#[tokio::test]
async fn t3_what_waits_comes_before_what_is_sent() {
    // Seen to fail: with `PLAIN_LANES` left out for a send, the one that was sent was claimed.
    let kit = Kit::postgres("offers_order").await;
    let worker = kit.worker().await;
    let first = kit.send(task().priority(-1)).await;
    let mut wakes = kit.store.wakes();
    let (sent, turned) = send(&kit, &worker, 1, vec![task()]).await;
    assert_eq!(ids(&turned.claimed), [first]);
    assert!(work(&mut wakes) > 0, "somebody has to look at the one that was sent");
    kit.check().await;
    assert_eq!(ids(&worker.claim(1).await), sent);
    kit.check().await;
}

#[tokio::test]
async fn t1_a_send_claims_within_every_cap() {
    // Seen to fail: with a counter taken for locked that was not, the send waited for whoever had the cluster's row.
    let (kit, url) = Kit::postgres_at("offers_caps").await;
    kit.cluster_cap(Some(2)).await;
    kit.queue("small", 1, Some(1)).await;
    let worker = kit.worker().await;
    let (sent, first) = send(&kit, &worker, 9, vec![task().queue("small"), task().queue("small")]).await;
    assert_eq!(ids(&first.claimed), sent[..1], "its queue is full");
    kit.check().await;

    // Whoever has the counters keeps no sender waiting, and nothing is taken of them.
    let mut client = connect(&url).await;
    let locked = client.transaction().await.expect("a transaction");
    locked.batch_execute("SELECT FROM cluster FOR UPDATE").await.expect("the cluster's row");
    let (late, turned) = in_time(send(&kit, &worker, 9, vec![task()])).await;
    assert_eq!((ids(&turned.claimed), turned.again), (Vec::new(), Again::WithLocks));
    locked.rollback().await.expect("rolled back");
    assert_eq!(ids(&worker.claim(9).await), late);
    let (_, turned) = send(&kit, &worker, 9, vec![task()]).await;
    assert_eq!(turned.claimed.len(), 0, "the cluster is full");
    assert_eq!(kit.store.cluster().await.expect("a look"), (2, Some(2)));
    kit.check().await;
}

#[tokio::test]
async fn t5_what_was_claimed_for_one_who_is_gone_goes_back_at_once() {
    // Seen to fail: without `send_back`, the task stayed held.
    let (kit, url) = Kit::postgres_at("offers_gone").await;
    let (worker, other) = (kit.worker().await, kit.worker().await);
    let id = kit.send(task()).await;
    other.done(other.claim(1).await).await;
    assert_eq!(kit.state(id).await, None);

    let mut client = connect(&url).await;
    let locked = client.transaction().await.expect("a transaction");
    locked.batch_execute("SELECT FROM lanes FOR UPDATE").await.expect("the lanes");
    let offered = offer(&kit, &worker, 1);
    let waits = kit.store.send(vec![task()]);
    let gone = async {
        // It has the offer when it waits for the lane.
        while in_time(locked.query_one("SELECT count(*) FROM pg_locks WHERE NOT granted", &[]))
            .await
            .expect("a look at the locks")
            .get::<_, i64>(0)
            == 0
        {
            flowgate_testkit::between_looks().await;
        }
        assert!(!offered.withdraw(), "a send has it");
        drop(offered);
        locked.rollback().await.expect("rolled back");
    };
    let (sent, ()) = tokio::join!(waits, gone);
    let id = sent.expect("it is stored")[0].id;
    let is_back = async {
        while !matches!(kit.state(id).await, Some(State::Waiting { .. })) {
            flowgate_testkit::between_looks().await;
        }
    };
    in_time(is_back).await;
    let again = other.claim(1).await;
    assert_eq!(again.iter().map(|task| (task.id, task.attempt)).collect::<Vec<_>>(), [(id, 1)]);
    kit.check().await;
}

#[tokio::test]
async fn s1_a_claim_that_fails_refuses_no_send() {
    // Seen to fail: with the error given to the sender, "no claims today".
    let (kit, url) = Kit::postgres_at("offers_fail").await;
    let (lost, worker) = (kit.worker().await, kit.worker().await);
    kit.advance(10 * SECOND);
    assert!(worker.beat().await);
    kit.pass(6 * SECOND).await;
    let mut offered = offer(&kit, &lost, 9);
    let first = kit.send(task()).await;
    let answer = in_time(offered.answer()).await;
    assert!(matches!(answer, Err(StoreError::Gone { worker }) if worker == lost.id), "{answer:?}");

    let client = connect(&url).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql \
        AS $$ BEGIN RAISE EXCEPTION 'no claims today'; END $$; \
        CREATE TRIGGER refuse BEFORE INSERT ON leases EXECUTE FUNCTION refuse()";
    client.batch_execute(refuse).await.expect("a trigger");
    let (second, turned) = send(&kit, &worker, 9, vec![task(), task()]).await;
    assert_eq!((turned.claimed.len(), turned.again), (0, Again::Now), "it looks for itself");
    client.batch_execute("DROP TRIGGER refuse ON leases").await.expect("no trigger");
    assert_eq!(ids(&worker.claim(9).await), [first, second[0], second[1]], "each is there once");
    kit.check().await;
}

#[tokio::test]
async fn t4_what_is_sent_to_an_idle_lane_is_claimed_before_what_is_large() {
    // Seen to fail: with lanes asked in the order of the grants, it was not claimed, and its lane stayed idle.
    let kit = Kit::postgres("offers_large").await;
    let large = kit.send_all((0..7).map(|_| NewTask::new("test", vec![0; 12 << 20])).collect()).await;
    let worker = kit.worker().await;
    let (sent, turned) = send(&kit, &worker, 20, vec![task().queue("other")]).await;
    assert!(ids(&turned.claimed).contains(&sent[0]), "as a send claims what it stores");
    kit.check().await;
    assert_eq!(turned.claimed.len(), 7, "and no more than a claim may take");
    assert_eq!(ids(&worker.claim(9).await), large[6..]);

    // More than a claim takes: the worker keeps its offer.
    let offered = offer(&kit, &worker, 20);
    let sent = kit.send_all((0..3).map(|_| NewTask::new("test", vec![0; 12 << 20])).collect()).await;
    assert!(offered.withdraw());
    assert_eq!(ids(&worker.claim(9).await), sent);
    kit.check().await;
}
