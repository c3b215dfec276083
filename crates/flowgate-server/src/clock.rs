//! The time of day, as the flow-control server tells it.

use std::time::{SystemTime, UNIX_EPOCH};

use flowgate_core::Tick;

/// Milliseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The same moment as stores count it.
pub(crate) fn tick(millis: u64) -> Tick {
    Tick::from_nanos(millis.saturating_mul(1_000_000))
}

/// How long something took, for whoever waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch(std::time::Instant::now())
    }

    pub(crate) fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
