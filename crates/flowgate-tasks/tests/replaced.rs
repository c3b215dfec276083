//! Tables that are restored, or dropped and made anew, under a process that goes on.

#![cfg(feature = "postgres")]

use std::time::Duration;

use flowgate_core::Limits;
use flowgate_tasks::{
    NewTask,
    store::{Claimed, End, NewWorker, Postgres, Settle, Store, StoreError, Turn, Want, WorkerId},
};
use flowgate_testkit::postgres::Postgres as Cluster;

/// A worker on the store, with a task of this key.
async fn busy(store: &Postgres, key: &str) -> (WorkerId, Claimed) {
    let lease = Duration::from_secs(60);
    let new = NewWorker { name: key.to_owned(), slots: 9, queues: Vec::new(), lease };
    let worker = store.register(new).await.expect("a worker");
    let limits = Limits::builder().max(1).build().expect("limits");
    let task = NewTask::new("one", Vec::new()).key(key).limits(limits);
    store.send(vec![task]).await.expect("sent");
    let want = Some(Want { slots: 9, per_queue: 9, with_locks: true });
    let turned = store.turn(worker, Turn { want, ..Turn::default() }).await.expect("a turn");
    (worker, turned.claimed.into_iter().next().expect("claimed"))
}

fn settle(task: Claimed) -> Turn {
    Turn { settles: vec![Settle { task, end: End::Done { result: Vec::new() } }], ..Turn::default() }
}

// Seen to fail: without the comparison the first settled, and so lost to the second, what that one had claimed under
// the same number.
#[tokio::test]
async fn s1_a_process_does_nothing_with_tables_that_were_made_anew_under_it() {
    let cluster = Cluster::shared();
    for is_dropped in [true, false] {
        let url = cluster.create_database("replaced").expect("a database");
        let name = url.rsplit('/').next().expect("a name");
        let before = Postgres::connect(&url).await.expect("a store");
        let (worker, task) = busy(&before, "before").await;
        match is_dropped {
            true => {
                let drop = format!("DROP DATABASE {name} WITH (FORCE)");
                cluster.psql(&cluster.url(), &drop).expect("dropped");
                cluster.psql(&cluster.url(), &format!("CREATE DATABASE {name}")).expect("made anew");
            }
            false => drop(cluster.psql(&url, "DROP SCHEMA flowgate CASCADE").expect("dropped")),
        }
        let after = Postgres::connect(&url).await.expect("a store");
        let (other, claimed) = busy(&after, "after").await;
        assert_eq!((other, claimed.lease), (worker, task.lease), "numbers are given again");
        // As a process does every second.
        before.upkeep().await.expect_err("it looks");
        let gone = before.turn(worker, settle(task)).await;
        assert!(matches!(gone, Err(StoreError::Gone { .. })), "{gone:?}");
        assert!(matches!(before.beat(worker).await, Err(StoreError::Gone { .. })), "its lease is over");
        let limits = Limits::builder().max(1).build().expect("limits");
        let sent = before.send(vec![NewTask::new("one", Vec::new()).key("before").limits(limits)]).await;
        let why = sent.expect_err("nothing is stored").to_string();
        assert!(why.contains("restart it"), "{why}");
        assert!(after.turn(other, settle(claimed)).await.expect("a turn").lost.is_empty());
        assert_eq!(after.audit().await.expect("an audit"), [""; 0]);
    }
}
