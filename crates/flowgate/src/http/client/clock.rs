//! What time it is, for the client: the one file here that reads it.
//!
//! Owns two clocks: the runtime's, in which delays and windows are counted (tests pause it), and the wall's, which is asked
//! only for a `Retry-After` that is a date in a response that does not say what time it is.

use std::time::SystemTime;

use flowgate_core::Tick;
use tokio::time::Instant;

/// Counts from when it was started.
#[derive(Debug)]
pub(super) struct Stopwatch {
    origin: Instant,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Stopwatch { origin: Instant::now() }
    }

    pub(super) fn now(&self) -> Tick {
        Tick::ZERO.after(Instant::now().saturating_duration_since(self.origin))
    }
}

/// The time of day.
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}
