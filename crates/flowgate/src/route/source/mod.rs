//! Sources: where exchanges come from.
//!
//! [`Source`] is the seam; one file for each that comes with the crate. A source from outside, such as a durable queue, is one
//! more implementation.

mod channel;
mod cron;
mod direct;
#[cfg(feature = "axum")]
mod http;
mod seam;
mod timer;
mod values;

pub use channel::{Channel, channel};
pub use cron::{CronSource, cron};
pub use direct::{DirectSource, direct};
#[cfg(feature = "axum")]
pub use http::{HttpSource, http_in};
pub(crate) use seam::Opener;
pub use seam::{Feed, Source};
pub use timer::{TimerSource, timer};
pub use values::{Values, values};
