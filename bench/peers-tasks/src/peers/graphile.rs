//! `graphile_worker`. Its limit: one at a time for each named queue.
//!
//! At its best with a local queue, which fetches many tasks at once, but no more than one of each named queue.

use std::{sync::Arc, time::Duration};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio_util::sync::CancellationToken;

use crate::{
    floor::perform,
    order::{Limit, Order},
    peer::{self, Failure, Peer},
    task::Task,
};

const FETCH: usize = 500;
const POLL: Duration = Duration::from_secs(1);
/// Nobody is told when a named queue is free again: whoever waits for one has to look.
const POLL_QUEUES: Duration = Duration::from_millis(20);

pub(crate) struct Graphile {
    worker: Worker,
    utils: WorkerUtils,
    pool: PgPool,
    limit: Limit,
}

impl TaskHandler for Task {
    const IDENTIFIER: &'static str = "task";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        perform(self).await;
        Ok::<(), String>(())
    }
}

impl Graphile {
    fn spec(&self, task: Task) -> JobSpec {
        let queue_name = (self.limit != Limit::None).then(|| task.key_name());
        JobSpec { queue_name, ..JobSpec::default() }
    }
}

impl Peer for Graphile {
    async fn open(order: &Order) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new().max_connections(20).connect(&order.database).await?;
        let poll = if order.limit == Limit::None { POLL } else { POLL_QUEUES };
        let worker = WorkerOptions::default()
            .pg_pool(pool.clone())
            .concurrency(order.concurrency as usize)
            .poll_interval(poll)
            .listen_os_shutdown_signals(false)
            .local_queue(LocalQueueConfig::default().with_size(FETCH))
            .complete_job_batch_delay(Duration::from_millis(1))
            .define_job::<Task>()
            .init()
            .await?;
        let utils = worker.create_utils();
        Ok(Graphile { worker, utils, pool, limit: order.limit })
    }

    async fn insert(&self, tasks: Vec<Task>) -> Result<(), Failure> {
        let jobs: Result<Vec<RawJobSpec>, serde_json::Error> = tasks
            .into_iter()
            .map(|task| {
                let payload = serde_json::to_value(task)?;
                Ok(RawJobSpec { identifier: Task::IDENTIFIER.to_owned(), payload, spec: self.spec(task) })
            })
            .collect();
        self.utils.add_raw_jobs(&jobs?).await?;
        Ok(())
    }

    async fn send(&self, task: Task) -> Result<(), Failure> {
        self.utils.add_job(task, self.spec(task)).await?;
        Ok(())
    }

    async fn unfinished(&self) -> Result<i64, Failure> {
        peer::count(&self.pool, "select count(*) from graphile_worker._private_jobs").await
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) -> Result<(), Failure> {
        let mut run = std::pin::pin!(self.worker.run());
        tokio::select! {
            ended = &mut run => return Ok(ended?),
            () = stop.cancelled() => self.worker.request_shutdown(),
        }
        Ok(run.await?)
    }
}
