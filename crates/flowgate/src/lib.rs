//! One gate for everything in flight.
//!
//! Flowgate bounds how much work runs at once and how often it starts. This crate is the library: [`gate`] has the gates.

pub mod clock;
pub mod gate;
#[cfg(doctest)]
mod snippets;
mod sync;

pub use flowgate_core::{
    Adaptive, Code, Discipline, Key, Limits, LimitsBuilder, OptionError, Outcome, Overflow, Period, Rate,
    Reason, Refusal, Shape, Spot, Tick,
};
pub use gate::{Gate, KeyedGate, Pass};
