//! Wrappers: what stands around the whole route, or around one step.
//!
//! One file for each: its options, which users build, and the step that wraps another. A wrapper is the same
//! thing in both scopes. Its place is decided in [`draft`](super::draft) (route scope, in a fixed order) and
//! in [`stack`] (step scope, in the order of the calls).

mod bound;
mod breaker;
mod cache;
mod circuit;
mod concurrency;
mod delay;
mod error;
mod passes;
mod retry;
mod stack;
mod throttle;
mod timeout;

pub use breaker::{Broken, CircuitBreaker};
pub(crate) use cache::Store;
pub use cache::{Cache, Cached};
pub(crate) use circuit::Circuit;
pub use concurrency::{Bounded, Concurrency};
pub use delay::Delayed;
pub(crate) use error::Handler;
pub use error::{Caught, Failure};
pub use retry::{Jitter, Retried, Retry};
pub use stack::{Bare, Complete, Stacked, Wrap};
pub use throttle::{Throttle, Throttled};
pub use timeout::Timed;
pub(crate) use timeout::check as check_timeout;
