//! Durable work: tasks that wait in a store until their limits let them start.
//!
//! A task is sent, waits in the lane of its queue, key and priority, is claimed by a worker under a lease, and is settled. The
//! limits hold at three levels at once: the worker's own slots, the queue, the cluster; and for each key.
//!
//! This crate owns the state machine, the one claim rule, the stores and the workers.
//! It knows no HTTP: who runs a task is a handler.

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
