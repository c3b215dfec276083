//! `apalis-postgres`. It has no limit that more than one process holds.

use std::{convert::Infallible, sync::Arc};

use apalis::prelude::{TaskSink, WorkerBuilder, WorkerBuilderExt};
use apalis_postgres::{Config, PgPool, PostgresStorage};
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;

use crate::{
    floor::perform,
    order::{Limit, Order},
    peer::{self, Failure, Peer},
    task::Task,
};

const QUEUE: &str = "bench";
const FETCH: usize = 500;

pub(crate) struct Apalis {
    pool: PgPool,
    storage: PostgresStorage<Task>,
    concurrency: usize,
}

async fn handle(task: Task) -> Result<(), Infallible> {
    perform(task).await;
    Ok(())
}

impl Peer for Apalis {
    async fn open(order: &Order) -> Result<Self, Failure> {
        if order.limit != Limit::None {
            return Err("apalis-postgres has no limit that more than one process holds".into());
        }
        let pool = PgPoolOptions::new().max_connections(20).connect(&order.database).await?;
        PostgresStorage::setup(&pool).await?;
        let config = Config::default().queue(QUEUE).batch_size(FETCH).lock_tasks(false);
        let storage = PostgresStorage::new(&pool).with_config(config);
        Ok(Apalis { pool, storage, concurrency: order.concurrency as usize })
    }

    async fn insert(&self, tasks: Vec<Task>) -> Result<(), Failure> {
        Ok(self.storage.clone().push_bulk(tasks).await?)
    }

    async fn send(&self, task: Task) -> Result<(), Failure> {
        Ok(self.storage.clone().push(task).await?)
    }

    async fn unfinished(&self) -> Result<i64, Failure> {
        peer::count(&self.pool, "select count(*) from apalis.jobs where status <> 'Done'").await
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) -> Result<(), Failure> {
        let backend = self.storage.clone().with_pubsub();
        let worker =
            WorkerBuilder::new("worker").backend(backend).concurrency(self.concurrency).build(handle);
        let stopped = async move {
            stop.cancelled().await;
            Ok::<(), std::io::Error>(())
        };
        Ok(worker.run_until(stopped).await?)
    }
}
