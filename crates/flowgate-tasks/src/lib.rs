//! Durable work: tasks that wait in a store until their limits let them start.
//!
//! A task is sent, waits in the lane of its queue, key and priority, is claimed by a worker under a lease,
//! and is settled. The limits hold at three levels at once (the worker's own slots, the queue, the cluster),
//! and for each key.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{sync::Arc, time::Duration};
//!
//! use flowgate_tasks::{
//!     Client, Limits, NewTask,
//!     store::{Sqlite, State, Store},
//!     worker::{Failure, Handlers, Worker, WorkerOptions},
//! };
//!
//! let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory()?); // or a file, or PostgreSQL
//! let client = Client::new(Arc::clone(&store));
//!
//! // At most two of this tenant at once, over all workers of all machines.
//! let limits = Limits::builder().max(2).build()?;
//! let task = NewTask::json("double", &21)?.key("tenant-42").limits(limits).keep_result(Duration::from_secs(60));
//! let sent = client.send(task).await?;
//!
//! let handlers = Handlers::new().on("double", |number: i64| async move { Ok::<_, Failure>(number * 2) });
//! let worker = Worker::new(store, handlers, WorkerOptions::default())?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let working = tokio::spawn(worker.run(async { drop(stopped.await) }));
//!
//! assert_eq!(client.wait(sent.id).await?, Some(State::Done { result: b"42".to_vec() }));
//! drop(stop); // running tasks finish and are settled
//! working.await??;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! This crate owns the state machine, the one claim rule, the stores and the workers. It knows nothing of HTTP: a
//! handler runs a task.

#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "each store uses its own part of what they share")
)]

mod client;
pub mod clock;
mod crontab;
pub mod explain;
mod ledger;
mod plan;
mod record;
mod reentry;
#[cfg(doctest)]
mod snippets;
pub mod store;
mod task;
mod terms;
mod upkeep;
pub mod worker;

pub use client::Client;
pub use crontab::Crontab;
pub use flowgate_core::Limits;
pub use record::{Record, Unreadable};
pub use task::{DEFAULT_QUEUE, MAX_BODY, MAX_NAME, MAX_WEIGHT, NewTask, Retry, SERVER_QUEUE, TaskId, When};
pub use upkeep::keep_up;
