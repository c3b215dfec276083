//! Tasks that send others and wait for them (G12).

use std::{sync::Arc, time::Duration};

use flowgate_tasks::{
    Client, NewTask, TaskId,
    store::{QueueLimits, State, Store},
    worker::{Failure, Handlers, Prefetch, Worker, WorkerOptions},
};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::timeout,
};

use crate::kit::{Kit, ids, max, rate};

const DEADLINE: Duration = Duration::from_secs(60);
/// A refusal comes with the first look, or the second.
const BRIEF: Duration = Duration::from_millis(2_500);
const KEPT: Duration = Duration::from_secs(3_600);

/// Lets a task of `parent` send this one and wait for it. What the parent says, and what became of the child after it.
async fn wait_inside(kit: &Kit, parent: NewTask, child: NewTask) -> (String, Option<State>) {
    let store = Arc::clone(&kit.store) as Arc<dyn Store>;
    let client = Client::new(Arc::clone(&store));
    let inside = client.clone();
    let handlers =
        Handlers::new().on("child", |()| async { Ok::<_, Failure>("the child's") }).on("parent", move |()| {
            let (client, child) = (inside.clone(), child.clone());
            async move {
                let child = client.send(child).await?.id;
                let said = match client.wait(child).await {
                    Ok(Some(State::Done { result })) => String::from_utf8_lossy(&result).into_owned(),
                    Ok(other) => format!("{other:?}"),
                    Err(refused) => refused.to_string(),
                };
                Ok::<_, Failure>((child.0, said))
            }
        });
    let (end, asked) = oneshot::channel::<()>();
    let worker = Worker::new(store, handlers, WorkerOptions { processes: 4, ..WorkerOptions::default() });
    let worker = tokio::spawn(worker.expect("a worker").run(async move { drop(asked.await) }));
    let parent = client.send(parent.keep_result(KEPT)).await.expect("sent").id;
    let ended = timeout(DEADLINE, client.wait(parent)).await.expect("it does not hang").expect("a store");
    let Some(State::Done { result }) = ended else { panic!("it ended otherwise: {ended:?}") };
    let (child, said): (i64, String) = serde_json::from_slice(&result).expect("what it said");
    let after = timeout(DEADLINE, client.wait(TaskId(child))).await;
    let after = after.expect("the child runs when its parent has ended").expect("a store");
    drop(end);
    timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
    let named =
        |said: String, id: i64, name: &str| said.replace(&format!("task {id} "), &format!("task {name} "));
    let said = named(named(said, parent.0, "<parent>"), child, "<child>");
    (said, after)
}

/// Lets a task wait for another one that its worker has at hand, for an hour. With two processes, the other one is busy
/// with a task of another queue until the child is waited for. What it says, and else why it was refused.
async fn wait_for_one_at_hand(
    kit: &Kit,
    of: &dyn Fn(NewTask) -> NewTask,
    processes: u32,
) -> Result<String, String> {
    let store = Arc::clone(&kit.store) as Arc<dyn Store>;
    let client = Client::new(Arc::clone(&store));
    let (told, heard) = watch::channel(0_i64);
    let (said, mut answer) = mpsc::channel(1);
    let is_waited_for = Arc::<Notify>::default();
    let (inside, is_asked) = (client.clone(), Arc::clone(&is_waited_for));
    let handlers = Handlers::new()
        .on("child", |()| async { Ok::<_, Failure>("the child's") })
        .on("other", move |()| {
            let is_asked = Arc::clone(&is_asked);
            async move {
                is_asked.notified().await;
                Ok::<_, Failure>(())
            }
        })
        .on("parent", move |()| {
            let (client, mut heard, said) = (inside.clone(), heard.clone(), said.clone());
            async move {
                let child = TaskId(*heard.wait_for(|child| *child != 0).await?);
                let waited = match client.wait(child).await {
                    Ok(Some(State::Done { result })) => Ok(String::from_utf8_lossy(&result).into_owned()),
                    other => Err(other.map_or_else(|refused| refused.to_string(), |end| format!("{end:?}"))),
                };
                let _ = said.send(waited).await;
                Ok::<_, Failure>(())
            }
        });
    let prefetch = Some(Prefetch { buffer: 1, lease: KEPT });
    let options = WorkerOptions { processes, prefetch, ..WorkerOptions::default() };
    let mut tasks = vec![of(parent())];
    if processes > 1 {
        tasks.push(NewTask::json("other", &()).expect("JSON").queue("other"));
    }
    tasks.push(of(child()));
    let sent = kit.send_all(tasks).await;
    let (parent, child) = (sent[0], sent[sent.len() - 1]);
    let (end, asked) = oneshot::channel::<()>();
    let worker = Worker::new(store, handlers, options).expect("a worker");
    let worker = tokio::spawn(worker.run(async move { drop(asked.await) }));
    let is_at_hand = async {
        while !matches!(kit.state(child).await, Some(State::Held { is_at_hand: true, .. })) {
            flowgate_testkit::between_looks().await;
        }
    };
    timeout(DEADLINE, is_at_hand).await.expect("it comes to hand");
    told.send(child.0).expect("somebody listens");
    // One that is refused is so while the other one runs.
    let first = timeout(BRIEF, answer.recv()).await;
    is_waited_for.notify_one();
    let waited = match first {
        Ok(waited) => waited,
        Err(_) => timeout(DEADLINE, answer.recv()).await.expect("it does not hang"),
    };
    drop(end);
    timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
    let named =
        |said: String, id: TaskId, name: &str| said.replace(&format!("task {id} "), &format!("task {name} "));
    let waited = waited.expect("it is told");
    waited.map_err(|said| named(named(said, parent, "<parent>"), child, "<child>"))
}

fn parent() -> NewTask {
    NewTask::json("parent", &()).expect("JSON")
}

fn child() -> NewTask {
    NewTask::json("child", &()).expect("JSON").keep_result(KEPT)
}

on_every_store! {
    #[test]
    async fn g12_a_task_that_would_wait_for_its_own_slot_is_refused_with_both_named(kit: &Kit) {
        // Seen to fail: without `reentry::check` in `Client::wait`, it waited for ever.
        let (said, after) =
            wait_inside(kit, parent().key("key").limits(max(1)), child().key("key").limits(max(1))).await;
        assert_eq!(
            said,
            "RC5026: re-entrant: task <child> waits for a slot of key `key` (1 of 1 in use) that task <parent> holds, \
                which would \
             wait for it; let task <parent> end first, or send task <child> with another key or to another queue"
        );
        assert!(matches!(after, Some(State::Done { .. })), "it is still there, and runs: {after:?}");
    }

    #[test]
    async fn g12_caps_of_queues_and_the_cluster_are_waited_for_no_more_than_keys(kit: &Kit) {
        // Seen to fail: with `check` looking at keys alone, it waited for ever.
        let queue = QueueLimits { name: "one".to_owned(), priority: 1, max: Some(1) };
        kit.store.set_queue(queue).await.expect("a queue");
        let (said, _) = wait_inside(kit, parent().queue("one"), child().queue("one")).await;
        assert!(said.contains("a slot of queue `one` (1 of 1 in use)"), "{said}");
        kit.cluster_cap(Some(1)).await;
        let (said, _) = wait_inside(kit, parent(), child()).await;
        assert!(said.contains("a slot of the cluster (1 of 1 in use)"), "{said}");
    }

    #[test]
    async fn g12_what_is_held_by_something_else_first_is_waited_for(kit: &Kit) {
        // Seen to fail: with the holders of the key, whose rate is spent, taken for those of the queue, it was refused.
        let queue = QueueLimits { name: "two".to_owned(), priority: 1, max: Some(2) };
        kit.store.set_queue(queue).await.expect("a queue");
        let other = kit.send(NewTask::json("other", &()).expect("JSON").queue("two")).await;
        let somebody = kit.worker().await;
        assert_eq!(ids(&somebody.claim(1).await), [other]);
        let drip = |task: NewTask| task.queue("two").key("key").limits(rate(1, "1h"));
        let store = Arc::clone(&kit.store) as Arc<dyn Store>;
        let client = Client::new(Arc::clone(&store));
        let (inside, (told, heard)) = (client.clone(), oneshot::channel());
        let told = Arc::new(std::sync::Mutex::new(Some(told)));
        let handlers = Handlers::new().on("parent", move |()| {
            let (client, told) = (inside.clone(), Arc::clone(&told));
            async move {
                let child = client.send(drip(child())).await?.id;
                let refused = timeout(BRIEF, client.wait(child)).await.is_ok();
                let told = told.lock().expect("nobody panics").take();
                told.map(|told| told.send(refused));
                Ok::<_, Failure>(())
            }
        });
        let (end, asked) = oneshot::channel::<()>();
        let worker = Worker::new(store, handlers, WorkerOptions::default()).expect("a worker");
        let worker = tokio::spawn(worker.run(async move { drop(asked.await) }));
        client.send(drip(parent())).await.expect("sent");
        let is_refused = timeout(DEADLINE, heard).await.expect("it does not hang").expect("it is told");
        assert!(!is_refused, "it waits for the rate, and the other slot is not its own");
        drop(end);
        timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
    }

    #[test]
    async fn g12_what_is_at_hand_for_the_place_of_who_waits_is_not_waited_for(kit: &Kit) {
        // Seen to fail: without `check_at_hand` in `Client::wait`, it waited for ever.
        let limits = max(1);
        let keyed = |task: NewTask| task.key("key").limits(limits);
        kit.queue("one", 1, Some(1)).await;
        kit.queue("other", 0, None).await;
        let queued = |task: NewTask| task.queue("one");
        let plain = |task: NewTask| task;
        for (of, processes, place) in [
            (&keyed as &dyn Fn(NewTask) -> NewTask, 1, "key `key`"),
            (&plain, 1, "worker "),
            (&queued, 2, "queue `one`"),
        ] {
            let said = wait_for_one_at_hand(kit, of, processes).await;
            let told = said.as_ref().err().map(String::as_str).unwrap_or_default();
            assert!(told.contains(place) && told.contains(" (where it is at hand) that task <parent> holds"), "{said:?}");
            assert!(told.starts_with("RC5026: re-entrant: task <child> waits"), "{said:?}");
        }
        // Another one of the worker may end, and then it starts.
        let said = wait_for_one_at_hand(kit, &plain, 2).await;
        assert_eq!(said, Ok("\"the child's\"".to_owned()));
    }

    #[test]
    async fn g12_who_waits_for_others_may(kit: &Kit) {
        // Seen to fail: with every task that waits refused in a handler, this one was.
        let limits = max(2);
        let (said, _) =
            wait_inside(kit, parent().key("key").limits(limits), child().key("key").limits(limits)).await;
        assert_eq!(said, "\"the child's\"");
    }
}
