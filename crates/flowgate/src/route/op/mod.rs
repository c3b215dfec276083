//! Operations: what steps do with an exchange.
//!
//! One file for each that needs more than a line. None of them spawns: what a step starts is polled by the step, so it is
//! inside of every bound around it and is cancelled with it.

mod choice;
mod multicast;
mod plain;
mod send;
mod split;
mod together;

pub use choice::{Cases, Choice};
pub use multicast::{Fan, Multicast};
pub use plain::{Filter, Transform, Validate};
pub use send::{Enrich, Tap, To};
pub use split::Split;
