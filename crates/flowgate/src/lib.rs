//! One gate for everything in flight.
//!
//! Flowgate bounds how much work runs at once and how often it starts. This crate is the library: [`gate`] has the gates,
//! `http` (a feature) the layers that stand on them at an HTTP edge, `route` (a feature) pipelines with the whole resilience
//! chain around them.

#[cfg(any(feature = "http", feature = "route"))]
mod chance;
pub mod clock;
pub mod gate;
#[cfg(feature = "http")]
pub mod http;
mod mailbox;
#[cfg(feature = "route")]
pub mod route;
#[cfg(doctest)]
mod snippets;
mod sync;

pub use flowgate_core::{
    Adaptive, Code, Discipline, Key, Limits, LimitsBuilder, OptionError, Outcome, Overflow, Period, Rate,
    Reason, Refusal, Shape, Spot, Tick,
};
pub use gate::{Gate, KeyedGate, Pass};
