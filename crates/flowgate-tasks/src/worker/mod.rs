//! Workers: processes that claim tasks, run them, and settle them.
//!
//! For readers of the code, in reading order:
//!
//! - `service`: the worker itself, one turn at a time. `options` are checked once, `handlers` run the tasks.
//! - `held`: the tasks that a worker holds; `stock`: tasks claimed ahead; `begun`: whether a task has begun.
//! - `lease`: taken, renewed, and known to be over in time. `under_way`: a turn that the store has not
//!   answered yet.
//! - `catch_up`: cancellations that the worker missed. `news`: what it reports to whoever runs it.

mod begun;
mod catch_up;
pub(crate) mod clock;
mod handlers;
mod held;
mod lease;
mod news;
mod options;
mod service;
mod stock;
mod under_way;

pub use begun::Begun;
pub use handlers::{Context, Failure, Handlers};
pub use news::News;
pub use options::{Prefetch, WorkerOptions};
pub use service::{Ending, Worker};
