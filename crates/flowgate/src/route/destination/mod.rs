//! Destinations: where exchanges are sent.
//!
//! [`Destination`] is the seam; a closure is one, and one file for each other that comes with the crate. A destination from
//! outside, such as a durable queue, is one more implementation.

mod closure;
mod direct;
#[cfg(feature = "route-http")]
mod http;
mod log;
mod seam;

pub use direct::{DirectTo, direct_to};
#[cfg(feature = "route-http")]
pub use http::{Http, HttpReply, http};
pub use log::{Log, log};
pub use seam::Destination;
