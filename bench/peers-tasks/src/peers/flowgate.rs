//! Ours: `flowgate-tasks` on the same PostgreSQL. Its limits: a cap over everything, a cap for the queue, and one for each key.

use std::{sync::Arc, time::Duration};

use flowgate_core::Limits;
use flowgate_tasks::{
    Client, NewTask,
    store::{Postgres, QueueLimits, Store},
    worker::{Failure as TaskFailure, Handlers, Prefetch, Worker, WorkerOptions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    floor::perform,
    order::{Command, Limit, Order},
    peer::{Failure, Peer},
    task::Task,
};

/// How many a drain holds at once: as many as the others fetch ahead. For us they all count as running.
const DRAIN: u32 = 500;
/// Wide enough that none of them is what a drain waits for.
const CLUSTER: u32 = 2_000;
const QUEUE: u32 = 1_500;
const KEY: u32 = 200;
/// How long a task that was claimed ahead may wait.
const AHEAD: Duration = Duration::from_secs(2);

pub(crate) struct Flowgate {
    store: Arc<dyn Store>,
    client: Client,
    limits: Option<Limits>,
    concurrency: u32,
    prefetch: u32,
}

impl Flowgate {
    fn task(&self, task: Task) -> Result<NewTask, Failure> {
        let new = NewTask::json("task", &task)?;
        Ok(match self.limits {
            Some(limits) => new.key(task.key_name()).limits(limits),
            None => new,
        })
    }
}

impl Peer for Flowgate {
    async fn open(order: &Order) -> Result<Self, Failure> {
        let store: Arc<dyn Store> = Arc::new(Postgres::connect(&order.database).await?);
        let max = match order.limit {
            Limit::None | Limit::Twenty => None,
            Limit::Wide => Some(KEY),
            Limit::Two => Some(2),
        };
        if order.limit == Limit::Wide {
            store.set_cluster_cap(Some(CLUSTER)).await?;
            store
                .set_queue(QueueLimits { name: "default".to_owned(), priority: 1, max: Some(QUEUE) })
                .await?;
        }
        if order.limit == Limit::Twenty {
            store.set_cluster_cap(Some(20)).await?;
        }
        let concurrency = if order.command == Command::Drain { DRAIN } else { order.concurrency };
        let limits = max.map(|max| Limits::builder().max(max).build()).transpose()?;
        let (client, prefetch) = (Client::new(Arc::clone(&store)), order.prefetch);
        Ok(Flowgate { client, store, limits, concurrency, prefetch })
    }

    async fn insert(&self, tasks: Vec<Task>) -> Result<(), Failure> {
        let tasks: Result<Vec<NewTask>, Failure> = tasks.into_iter().map(|task| self.task(task)).collect();
        self.client.send_all(tasks?).await?;
        Ok(())
    }

    async fn send(&self, task: Task) -> Result<(), Failure> {
        self.client.send(self.task(task)?).await?;
        Ok(())
    }

    async fn unfinished(&self) -> Result<i64, Failure> {
        let queues = self.store.queues().await?;
        Ok(queues.iter().map(|queue| (queue.waiting + queue.delayed) as i64 + i64::from(queue.in_use)).sum())
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) -> Result<(), Failure> {
        let handlers = Handlers::new().on("task", |task: Task| async move {
            perform(task).await;
            Ok::<(), TaskFailure>(())
        });
        let prefetch = (self.prefetch > 0).then_some(Prefetch { buffer: self.prefetch, lease: AHEAD });
        let options = WorkerOptions { processes: self.concurrency, prefetch, ..WorkerOptions::default() };
        let worker = Worker::new(Arc::clone(&self.store), handlers, options)?;
        worker.run(stop.cancelled_owned()).await?;
        Ok(())
    }
}
