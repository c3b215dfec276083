//! What a worker that is full makes of its slots: whoever waits in its queues gets a share of them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use flowgate_tasks::{
    NewTask,
    worker::{Handlers, Worker, WorkerOptions},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::kit::Kit;

const DEADLINE: Duration = Duration::from_secs(30);

on_every_store! {
    #[test]
    async fn t3_a_full_worker_serves_a_queue_with_a_max_and_one_without_in_turn(kit: &Kit) {
        // Seen to fail: on PostgreSQL, with what a lock might give granted to the others, and a full worker waiting for a
        // free slot to lock with, it settled nothing any more after three tasks; with only the latter mended, those of
        // `capped` ran last.
        kit.queue("capped", 0, Some(5)).await;
        kit.queue("open", 0, None).await;
        for (queue, count) in [("capped", 10), ("open", 40)] {
            let task = |_| NewTask::json("run", &queue).expect("a task").queue(queue);
            kit.send_all((0..count).map(task).collect()).await;
        }
        let (told, mut ran) = mpsc::channel(50);
        let handlers = Handlers::new().on("run", move |queue: String| {
            let told = told.clone();
            async move {
                told.send(queue).await.expect("somebody listens");
                Ok::<(), Infallible>(())
            }
        });
        let options = WorkerOptions { processes: 1, ..WorkerOptions::default() };
        let (end, asked) = oneshot::channel::<()>();
        let worker = Worker::new(Arc::clone(&kit.store), handlers, options).expect("a worker");
        let worker = tokio::spawn(worker.run(async move { drop(asked.await) }));
        let mut order = Vec::new();
        while order.len() < 50 {
            order.push(timeout(DEADLINE, ran.recv()).await.unwrap_or_else(|_| panic!("after {order:?}")).expect("told"));
        }
        let early = order[..25].iter().filter(|queue| *queue == "capped").count();
        assert!(early >= 8, "{order:?}");
        drop(end);
        timeout(DEADLINE, worker).await.expect("it ends").expect("no panic").expect("and well");
    }
}
