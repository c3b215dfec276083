//! What PostgreSQL reads on the way to a task: counted by the server itself.

#![cfg(feature = "postgres")]

use std::time::Duration;

use flowgate_tasks::{
    NewTask,
    store::{KeyChange, NewWorker, Postgres, Store, Turn, Want},
};
use tokio_postgres::{Client, NoTls};

const WAITING: u32 = 5_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks until the answer is this one.
async fn until(client: &Client, sql: &str, wanted: i64) {
    let told = async {
        loop {
            let row = client.query_one(sql, &[]).await.expect("an answer");
            if row.get::<_, i64>(0) == wanted {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("{sql}: it is not {wanted}"));
}

// Seen to fail: with `Plans::Any` for turns, 5,000 tasks were read to see that the other key's lane is empty.
#[tokio::test]
async fn t3_what_waits_is_not_read_for_another_keys_first_task() {
    let url = flowgate_testkit::postgres::Postgres::shared().create_database("plans").expect("a database");
    let store = Postgres::connect(&url).await.expect("a store");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let worker =
        NewWorker { name: "one".to_owned(), slots: 9, queues: Vec::new(), lease: Duration::from_secs(15) };
    let worker = store.register(worker).await.expect("a worker");

    for key in 0..10 {
        store.change_key(format!("paused-{key}"), KeyChange::Pause).await.expect("paused");
    }
    let waiting = |number: u32| NewTask::new("one", vec![0; 64]).key(format!("paused-{}", number % 10));
    store.send((0..WAITING).map(waiting).collect()).await.expect("sent");
    client.batch_execute("ANALYZE flowgate.tasks, flowgate.lanes, flowgate.keys").await.expect("analyzed");

    for number in 0..3 {
        let sent = store.send(vec![NewTask::new("one", Vec::new()).key(format!("other-{number}"))]).await;
        let want = Some(Want { slots: 9, per_queue: 9, with_locks: true });
        let turned = store.turn(worker, Turn { want, ..Turn::default() }).await.expect("a turn");
        let claimed: Vec<_> = turned.claimed.iter().map(|task| task.id).collect();
        assert_eq!(claimed, [sent.expect("sent")[0].id]);
    }
    // Lanes that are empty become idle after the turn has replied.
    until(&client, "SELECT count(*) FROM flowgate.lanes WHERE state = 1", 0).await;
    // What a connection has read is told when it ends, at the latest.
    drop(store);
    let others = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    until(&client, others, 0).await;
    let read =
        "SELECT seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'flowgate' AND relname = 'tasks'";
    let read: i64 = client.query_one(read, &[]).await.expect("an answer").get(0);
    assert!(read < i64::from(WAITING), "{read} rows were read in the order they stand in the table");
}
