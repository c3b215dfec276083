//! At most so many requests in flight.
//!
//! [`layer`] has the options and the gate, which the layer owns: every service made by one layer enters the same gate.
//! [`service`] takes the slot, in `call` and never in `poll_ready`. [`fleet`] has both for a gate that a fleet of servers shares.

#[cfg(feature = "shared")]
mod fleet;
mod layer;
mod service;

#[cfg(feature = "shared")]
pub use fleet::{SharedConcurrency, SharedConcurrencyLimit, SharedConcurrencyLimitBuilder};
pub use layer::{ConcurrencyLimit, ConcurrencyLimitBuilder, Line, ReleaseAt};
pub use service::Concurrency;

pub(crate) use layer::{Shared, Terms};
