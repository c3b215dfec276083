//! At most so many requests in flight.
//!
//! [`layer`] has the options and the gate, which the layer owns: every service made by one layer enters the same gate.
//! [`service`] takes the slot, in `call` and never in `poll_ready`.

mod layer;
mod service;

pub use layer::{ConcurrencyLimit, ConcurrencyLimitBuilder, Line, ReleaseAt};
pub use service::Concurrency;

pub(crate) use layer::{Shared, Terms};
