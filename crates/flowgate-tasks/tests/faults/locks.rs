//! Rows that somebody else has: whoever waits for them keeps nobody else waiting, and no two wait for each other.

use std::sync::Arc;

use flowgate_tasks::{
    NewTask,
    store::{
        End, KeyChange, NewStep, Postgres, QueueLimits, RunChange, RunWrite, Settle, Shelf, Store, Turn, Want,
    },
};
use tokio::time::timeout;

use crate::scene::{DEADLINE, Scene, connect, keyed, register, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_change_for_all_keys_waits_for_turns_before_it_locks_anything() {
    // Seen to fail: with the cluster's row locked first, the turn waited for it, and the change for the turn's key.
    let scene = start("latest").await;
    scene.store.set_cluster_cap(Some(9)).await.expect("a cap");
    scene.store.send(vec![keyed("k", 1)]).await.expect("sent");
    let turn = connect(&scene.url).await;
    let locks = "SET lock_timeout TO '5s'; BEGIN; LOCK TABLE leases IN ROW EXCLUSIVE MODE; SELECT FROM keys FOR NO KEY UPDATE";
    turn.batch_execute(locks).await.expect("as a turn does");
    let store = Arc::clone(&scene.store);
    let changing = tokio::spawn(async move { store.set_latest(true).await });
    scene.until_it_waits(&changing, &turn).await;
    turn.batch_execute("UPDATE cluster SET in_use = in_use; COMMIT").await.expect("nobody has it");
    timeout(DEADLINE, changing).await.expect("in time").expect("no panic").expect("and well");
    assert_eq!(scene.count("keys WHERE latest").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_a_cap_that_cannot_be_set_for_a_locked_key_stops_no_turn() {
    // Seen to fail: with nothing said of how long a change waits, the other worker's turn stood behind it and did not end;
    // with all of them in the order of their transactions, the one who is told of is the bystander.
    let scene = start("stuck_key").await;
    scene.store.send(vec![keyed("stuck", 1)]).await.expect("sent");
    let ended = |task| Settle { task, end: End::Done { result: Vec::new() } };
    let settles = scene.claim_all(1).await.into_iter().map(ended).collect();
    // For longer, but nobody waits for it.
    let bystander = connect(&scene.url).await;
    bystander.batch_execute("BEGIN; LOCK TABLE keys IN ROW SHARE MODE").await.expect("it has keys");
    let holder = connect(&scene.url).await;
    holder.batch_execute("BEGIN; SELECT FROM keys FOR UPDATE").await.expect("it has it, and says no more");
    let turn = {
        let (store, worker) = (Arc::clone(&scene.store), scene.worker);
        tokio::spawn(async move { store.turn(worker, Turn { settles, ..Turn::default() }).await })
    };
    scene.until_it_waits(&turn, &holder).await;

    let other = Arc::new(Postgres::connect(&scene.url).await.expect("a store"));
    let worker = register(&other).await;
    let want = Some(Want { slots: 1, per_queue: 1, with_locks: true });
    let turn_of_other = async || {
        let claiming = async {
            let turn = || other.turn(worker, Turn { want, ..Turn::default() });
            while turn().await.expect("a turn").claimed.is_empty() {}
        };
        timeout(DEADLINE, claiming).await.expect("tasks of other keys run");
    };
    other.send(vec![keyed("one", 1), keyed("two", 1)]).await.expect("sent");
    turn_of_other().await;
    let queue = QueueLimits { name: "default".to_owned(), priority: 0, max: Some(5) };
    let setting = {
        let (store, queue) = (Arc::clone(&other), queue.clone());
        tokio::spawn(async move { store.set_queue(queue).await })
    };
    let is_asked =
        "pg_locks WHERE relation = 'leases'::regclass AND mode = 'ShareRowExclusiveLock' AND NOT granted";
    while !setting.is_finished() && scene.count(is_asked).await == 0 {}
    turn_of_other().await;
    timeout(DEADLINE, other.queues()).await.expect("whoever looks is not kept waiting").expect("a look");

    let told = timeout(DEADLINE, setting).await.expect("it does not wait for ever").expect("no panic");
    let told = told.expect_err("somebody has the key").to_string();
    let holds: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.expect("its process").get(0);
    assert!(told.contains(&format!("process {holds} of the database server")), "{told}");
    holder.batch_execute("ROLLBACK").await.expect("it goes on");
    timeout(DEADLINE, turn).await.expect("so does the turn").expect("no panic").expect("settled");
    other.set_queue(queue).await.expect("a cap");
    scene.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_a_key_that_somebody_has_keeps_nobody_else_waiting() {
    // Seen to fail: with a change that waits on its connection for as long as the key is locked, whoever looks waits behind it.
    let scene = start("held_key").await;
    scene.store.send(vec![keyed("held", 1)]).await.expect("sent");
    let holder = connect(&scene.url).await;
    holder
        .batch_execute("BEGIN; SELECT FROM keys, queues FOR UPDATE")
        .await
        .expect("it has them, and says no more");
    let pausing = {
        let store = Arc::clone(&scene.store);
        tokio::spawn(async move { store.change_key("held".to_owned(), KeyChange::Pause).await })
    };
    scene.until_it_waits(&pausing, &holder).await;
    let stopping = {
        let store = Arc::clone(&scene.store);
        tokio::spawn(async move { store.pause_queue("default".to_owned(), true).await })
    };
    for _ in 0..3 {
        timeout(DEADLINE, scene.store.queues()).await.expect("a look waits for neither").expect("a look");
    }
    assert!(!pausing.is_finished() && !stopping.is_finished());
    holder.batch_execute("ROLLBACK").await.expect("it goes on");
    timeout(DEADLINE, pausing).await.expect("so does the change").expect("no panic").expect("paused");
    assert!(timeout(DEADLINE, stopping).await.expect("and the other").expect("no panic").expect("paused"));
    scene.check().await;
}

/// Locks the lane, lets the work lock the key and wait for the lane, and then asks for the key: of the two, it is the
/// work that is told to give way.
async fn in_a_circle<T: Send + 'static>(scene: &Scene, work: tokio::task::JoinHandle<T>) -> T {
    scene.until_it_waits(&work, &scene.client).await;
    scene.client.batch_execute("SELECT FROM keys FOR UPDATE; COMMIT").await.expect("the other gave way");
    timeout(DEADLINE, work).await.expect("in time").expect("and well")
}

const LOCK_LANE: &str = "SET deadlock_timeout TO '1min'; BEGIN; SELECT FROM lanes FOR NO KEY UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_who_is_told_to_give_way_tries_again() {
    // Seen to fail: without another try, the change of the key failed with 40P01; and so did the send, without the change.
    let scene = start("circle").await;
    scene.store.send(vec![keyed("k", 1), keyed("k", 1)]).await.expect("sent");
    assert_eq!(scene.claim().await.len(), 1, "the other one is held");
    scene.client.batch_execute(LOCK_LANE).await.expect("a lock");
    let store = Arc::clone(&scene.store);
    let change = tokio::spawn(async move { store.change_key("k".to_owned(), KeyChange::Pause).await });
    in_a_circle(&scene, change).await.expect("the key is changed");

    // Other limits than the last, so that a send takes the key; and an idle lane, which it makes ready.
    let other = "UPDATE keys SET sent = ''; UPDATE lanes SET state = 0";
    scene.client.batch_execute(other).await.expect("as before the first send");
    scene.client.batch_execute(LOCK_LANE).await.expect("a lock");
    in_a_circle(&scene, scene.sending(keyed("k", 1))).await;
    assert_eq!(scene.count("tasks").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_runs_are_locked_in_the_order_of_their_names() {
    // Seen to fail: in the caller's order, `b` was locked while `a` was waited for.
    let scene = start("runs").await;
    let begin = |name: &str| {
        let write = RunWrite::Start { id: name.to_owned(), origin: None, head: Vec::new() };
        RunChange { name: name.to_owned(), write, steps: Vec::new(), tasks: Vec::new() }
    };
    let append = |name: &str| {
        let steps = vec![NewStep { name: format!("{name}-step"), body: Vec::new(), task: None }];
        RunChange {
            name: name.to_owned(),
            write: RunWrite::append(),
            steps,
            tasks: vec![NewTask::new(name, Vec::new())],
        }
    };
    scene.store.change_runs(vec![begin("a"), begin("b")]).await.expect("two runs");
    scene.client.batch_execute("BEGIN; SELECT FROM runs WHERE name = 'a' FOR UPDATE").await.expect("a lock");
    let (store, changes) = (Arc::clone(&scene.store), vec![append("b"), append("a")]);
    let writing = tokio::spawn(async move { store.change_runs(changes).await });
    scene.until_it_waits(&writing, &scene.client).await;
    let other = "SELECT FROM runs WHERE name = 'b' FOR UPDATE NOWAIT; COMMIT";
    scene.client.batch_execute(other).await.expect("nobody has it");
    let outcomes = timeout(DEADLINE, writing).await.expect("in time").expect("no panic").expect("and well");
    let tasks = outcomes.iter().map(|outcome| match outcome {
        flowgate_tasks::store::RunOutcome::Written { tasks, .. } => tasks[0],
        other => panic!("{other:?}"),
    });
    for (task, kind) in tasks.zip(["b", "a"]) {
        let look = scene.store.look_at_task(task).await.expect("a look").expect("a task");
        assert_eq!(look.record.expect("kept").kind, kind, "outcomes are in the caller's order");
    }
}
