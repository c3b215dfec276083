//! Workers: processes that claim tasks, run them, and settle them.

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
