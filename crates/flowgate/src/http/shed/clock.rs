//! Ticks of the runtime, and how late they come.
//!
//! Owns the only look at the time in this room. A task that is due and not run is what a request meets as well.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

pub(super) struct Ticks(Interval);

impl Ticks {
    pub(super) fn every(period: Duration) -> Self {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ticks(ticks)
    }

    /// Waits for the next tick, and says how late it came.
    ///
    /// Cancel safety: dropped, no tick is lost.
    pub(super) async fn next(&mut self) -> Duration {
        let due = self.0.tick().await;
        Instant::now().duration_since(due)
    }
}
