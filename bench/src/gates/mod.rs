//! The gates of the process beside what others offer: one file for each group of cases.

pub(crate) mod contended;
mod door;
pub(crate) mod enter;
pub(crate) mod features;
pub(crate) mod flat;
pub(crate) mod keyed;
pub(crate) mod memory;
pub(crate) mod rate;
pub(crate) mod refusal;
pub(crate) mod service;
pub(crate) mod waiters;
