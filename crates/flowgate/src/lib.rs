//! One gate for everything in flight.
//!
//! Flowgate bounds how much work runs at once and how often it starts. This crate is the library: [`gate`] has the gates,
//! `http` (a feature) the layers that stand on them at an HTTP edge.

pub mod clock;
pub mod gate;
#[cfg(feature = "http")]
pub mod http;
#[cfg(doctest)]
mod snippets;
mod sync;

pub use flowgate_core::{
    Adaptive, Code, Discipline, Key, Limits, LimitsBuilder, OptionError, Outcome, Overflow, Period, Rate,
    Reason, Refusal, Shape, Spot, Tick,
};
pub use gate::{Gate, KeyedGate, Pass};
