//! At most so many requests per period.
//!
//! [`layer`] has the options and the gate; [`service`] spends one start in `call`.

mod layer;
mod service;

pub use layer::{RateLimit, RateLimitBuilder};
pub use service::Rated;
