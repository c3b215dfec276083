//! What a peer has to be able to do.

use std::{error::Error, future::Future, sync::Arc};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{order::Order, task::Task};

/// Anything that went wrong; it ends the process, and is told.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A durable queue. Its handler awaits [`floor::perform`](crate::floor::perform), and does nothing else.
pub(crate) trait Peer: Sized + Send + Sync + 'static {
    /// Connects, makes what is missing in the store, and readies a worker where the order wants one. Not timed.
    fn open(order: &Order) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Puts these into the store at once; done when they are safe.
    fn insert(&self, tasks: Vec<Task>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Puts one into the store; done when it is safe. Many call this at once.
    fn send(&self, task: Task) -> impl Future<Output = Result<(), Failure>> + Send;

    /// How many are not over yet, as the store sees it.
    fn unfinished(&self) -> impl Future<Output = Result<i64, Failure>> + Send;

    /// Runs tasks until it is told to stop; then lets those that run end.
    fn work(self: Arc<Self>, stop: CancellationToken) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The number that a statement gives.
pub(crate) async fn count(pool: &PgPool, statement: &'static str) -> Result<i64, Failure> {
    Ok(sqlx::query_scalar(statement).fetch_one(pool).await?)
}
