//! `horsies`. Its limits: a cap for the cluster, and one for each custom queue.

use std::{sync::Arc, time::Duration};

use horsies::{
    AppConfig, CustomQueueConfig, QueueMode, TaskError, TaskFunction, Worker, WorkerConfig, WorkerError,
    async_task_fn,
};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    floor::perform,
    order::{Limit, Order},
    peer::{self, Failure, Peer},
    task::{Task, key_name},
};

/// The cap of the cluster where limits are to be wide.
const CLUSTER: u32 = 20;
/// The cap of a queue where two may run at once.
const TWO: u32 = 2;
/// How many send at once where many are inserted: it has no call for many.
const SENDERS: usize = 16;
/// How often a worker tries to start, and how long it waits between two tries.
const STARTS: usize = 20;
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Horsies {
    pool: PgPool,
    worker: Worker,
    /// By queue.
    tasks: Arc<Vec<TaskFunction<Task, ()>>>,
}

async fn handle(task: Task) -> Result<(), TaskError> {
    perform(task).await;
    Ok(())
}

fn config(order: &Order) -> AppConfig {
    let config = AppConfig::for_database_url(&order.database);
    let queue = |key| CustomQueueConfig { name: key_name(key), priority: 1, max_concurrency: Some(TWO) };
    match order.limit {
        Limit::None => config,
        Limit::Wide | Limit::Twenty => AppConfig { cluster_wide_cap: Some(CLUSTER), ..config },
        Limit::Two => AppConfig {
            queue_mode: QueueMode::Custom,
            custom_queues: Some((0..order.keys).map(queue).collect()),
            ..config
        },
    }
}

impl Peer for Horsies {
    async fn open(order: &Order) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new().max_connections(1).connect(&order.database).await?;
        let mut app = horsies::Horsies::new(config(order))?;
        let mut tasks = Vec::new();
        let mut queues = Vec::new();
        if order.limit == Limit::Two {
            for name in (0..order.keys).map(key_name) {
                let task = app.task::<Task, ()>(&format!("task-{name}"), async_task_fn!(handle, Task))?;
                tasks.push(task.queue(&name).register()?);
                queues.push(name);
            }
        } else {
            tasks.push(app.task::<Task, ()>("task", async_task_fn!(handle, Task))?.register()?);
            queues.push("default".to_owned());
        }
        let (config, registry, workflows, broker) = app.into_parts().await?;
        let mut worker = WorkerConfig { queues, concurrency: order.concurrency, ..WorkerConfig::default() };
        worker.apply_queue_config(&config);
        let worker = Worker::new(broker, Arc::new(registry), Arc::new(workflows), config, worker)?;
        Ok(Horsies { pool, worker, tasks: Arc::new(tasks) })
    }

    async fn insert(&self, tasks: Vec<Task>) -> Result<(), Failure> {
        let mut senders = JoinSet::new();
        for share in tasks.chunks(tasks.len().div_ceil(SENDERS).max(1)).map(<[Task]>::to_vec) {
            let functions = Arc::clone(&self.tasks);
            senders.spawn(async move {
                for task in share {
                    functions[task.key as usize % functions.len()].send(task).await?;
                }
                Ok::<(), Failure>(())
            });
        }
        while let Some(ended) = senders.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn send(&self, task: Task) -> Result<(), Failure> {
        self.tasks[task.key as usize % self.tasks.len()].send(task).await?;
        Ok(())
    }

    async fn unfinished(&self) -> Result<i64, Failure> {
        let statement =
            "select count(*) from horsies_tasks where status::text in ('PENDING', 'CLAIMED', 'RUNNING')";
        peer::count(&self.pool, statement).await
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) -> Result<(), Failure> {
        // Workers that start together may find one of them at the partitions, and give up.
        for _ in 0..STARTS {
            let mut run = std::pin::pin!(self.worker.run());
            let ended = tokio::select! {
                ended = &mut run => ended,
                () = stop.cancelled() => {
                    self.worker.request_stop();
                    run.await
                }
            };
            match ended {
                Err(WorkerError::Config(_)) => sleep(AGAIN).await,
                ended => return Ok(ended?),
            }
        }
        Err("it does not start".into())
    }
}
