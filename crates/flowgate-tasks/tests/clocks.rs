//! A clock that is set while a worker is busy, on PostgreSQL (T5).

#![cfg(feature = "postgres")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowgate_core::Tick;
use flowgate_tasks::{
    NewTask,
    clock::Wall,
    store::{NewWorker, Postgres, PostgresOptions, Store, Turn, Want},
};
use flowgate_testkit::postgres::Postgres as Cluster;
use tokio_postgres::NoTls;

/// What it shows, and what has passed, in nanoseconds.
struct Clock {
    shows: AtomicU64,
    passed: AtomicU64,
}

impl Wall for Clock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.shows.load(Ordering::SeqCst))
    }

    fn passed(&self) -> Duration {
        Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn t5_a_clock_that_is_set_forward_ends_no_lease_of_one_whose_turn_is_under_way() {
    // Seen to fail: with `FOR UPDATE SKIP LOCKED` in `SPARE_LEASES`, it was passed over, and taken for dead a second later.
    let url = Cluster::shared().create_database("clock_forward").expect("a database");
    let clock =
        Arc::new(Clock { shows: AtomicU64::new(1_800_000_000_000_000_000), passed: AtomicU64::new(0) });
    let options = PostgresOptions { clock: Some(Arc::clone(&clock) as Arc<dyn Wall>) };
    let store = Postgres::connect_with(&url, options).await.expect("a store");
    let lease = Duration::from_secs(15);
    let worker = NewWorker { name: "busy".to_owned(), slots: 9, queues: Vec::new(), lease };
    let worker = store.register(worker).await.expect("a worker");
    store.send(vec![NewTask::new("one", Vec::new())]).await.expect("sent");
    let want = Some(Want { slots: 9, per_queue: 9, with_locks: true });
    let turned = store.turn(worker, Turn { want, ..Turn::default() }).await.expect("a turn");
    assert_eq!(turned.claimed.len(), 1);
    store.upkeep().await.expect("upkeep");

    // As a turn has it until it commits.
    let (busy, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    busy.batch_execute("BEGIN; SELECT id FROM flowgate.workers FOR KEY SHARE").await.expect("a lock");
    clock.shows.fetch_add(3_600_000_000_000, Ordering::SeqCst);
    assert_eq!(store.upkeep().await.expect("upkeep").recovered, 0);
    busy.batch_execute("COMMIT").await.expect("the turn's end");

    for time in [&clock.shows, &clock.passed] {
        time.fetch_add(1_000_000_000, Ordering::SeqCst);
    }
    assert_eq!(store.upkeep().await.expect("upkeep").recovered, 0, "it still runs");
    assert!(store.beat(worker).await.expect("a beat"), "it is known");
}
