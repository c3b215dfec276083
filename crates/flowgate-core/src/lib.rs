//! The rules of Flowgate, pure.
//!
//! This crate owns every rule that says whether work may start: limits and how they are checked, lanes and
//! how they change, rates, adaptive maxima, when a schedule is next due, and the words for a refusal. It must
//! never read a clock, spawn, lock, allocate a queue or do I/O: the caller says what time it is ([`Tick`])
//! and keeps the state.
//!
//! The one decision that everything obeys is [`Lane::decide`]: given [`Limits`], a [`Lane`] and `now`, work
//! is admitted, waits, or is refused. The gates of the `flowgate` crate call it under their lock. The stores
//! of `flowgate-tasks` call its half for the head of a line, [`Lane::hold`], inside their claim transaction.
//! No limit is restated in SQL.

mod adaptive;
mod backoff;
mod cron;
mod discipline;
mod error;
mod event;
mod key;
mod lane;
mod lease;
mod limits;
mod period;
mod rate;
mod refusal;
mod tick;

pub use adaptive::{Adaptive, AdaptiveState, Outcome, Sample};
pub use backoff::backoff;
pub use cron::Cron;
pub use discipline::{Backlog, Discipline, End};
pub use error::{Code, OptionError};
pub use event::{Event, Ident, What};
pub use key::Key;
pub use lane::{Decision, Hold, Lane};
pub use lease::relied_on;
pub use limits::{Limits, LimitsBuilder, MAX_MAX, MAX_QUEUE, Overflow};
pub use period::Period;
pub use rate::{Rate, RateLook, RateState, Shape};
pub use refusal::{Details, Reason, Refusal, Spot};
pub use tick::Tick;
