//! One gate for everything in flight.
//!
//! Flowgate bounds how much work runs at once and how often it starts. This crate is the library:
//!
//! - [`gate`]: gates in the process.
//! - `http` (features `http`, `axum`): limits at an HTTP edge, as `tower` layers, and a client that respects
//!   them.
//! - `route` (features `route`, `route-http`, `route-queue`): pipelines with retry, timeout, breaker and
//!   limits.
//! - `shared` (features `shared-postgres`, `shared-redis`): gates whose limits hold over many processes.
//!
//! ```
//! use flowgate::Gate;
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // At most ten at once; three more may wait, half a second each.
//! let gate = Gate::builder().max(10).queue(3).timeout(Duration::from_millis(500)).build()?;
//! let rows = gate.run(async { "what a scarce thing is needed for" }).await?;
//! # Ok(())
//! # }
//! ```

#[cfg(any(feature = "http", feature = "route", feature = "shared"))]
mod chance;
pub mod clock;
pub mod gate;
#[cfg(feature = "http")]
pub mod http;
mod mailbox;
#[cfg(feature = "route")]
pub mod route;
#[cfg(feature = "shared")]
pub mod shared;
#[cfg(doctest)]
mod snippets;
mod sync;

pub use flowgate_core::{
    Adaptive, Code, Discipline, Key, Limits, LimitsBuilder, OptionError, Outcome, Overflow, Period, Rate,
    Reason, Refusal, Shape, Spot, Tick,
};
pub use gate::{Gate, KeyedGate, Pass};
