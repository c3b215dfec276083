//! At most so many requests per period.
//!
//! [`layer`] has the options and the gate; [`service`] spends one start in `call`. [`fleet`] has both for a gate that a fleet of
//! servers shares: there the answer comes from a store, so one has to be waited for.

#[cfg(feature = "shared")]
mod fleet;
mod layer;
mod service;

#[cfg(feature = "shared")]
pub use fleet::{SharedRateLimit, SharedRateLimitBuilder, SharedRated};
pub use layer::{RateLimit, RateLimitBuilder};
pub use service::Rated;
