//! The time of day, as stores know it.
//!
//! The only file of this crate that reads the system's time. A store that keeps its own clock does not use
//! it.

use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flowgate_core::Tick;

/// A clock on the wall: nanoseconds since the Unix epoch. Unlike a monotonic one it means the same in every process.
pub trait Wall: Send + Sync + 'static {
    /// What it shows.
    fn now(&self) -> Tick;

    /// How much time has passed since some moment, by a clock that nobody sets: compared with it, a wall
    /// clock that was set shows. The default is this clock's own time, which then never seems to have been
    /// set.
    fn passed(&self) -> Duration {
        Duration::from_nanos(self.now().as_nanos())
    }
}

/// The system's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWall;

impl Wall for SystemWall {
    fn now(&self) -> Tick {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Tick::ZERO.after(since)
    }

    fn passed(&self) -> Duration {
        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        FIRST.elapsed()
    }
}

/// A look at a wall clock: what it showed, and what had passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) showed: Tick,
    pub(crate) passed: Duration,
}

impl Look {
    /// Whether it is set back since.
    pub(crate) fn is_before(&self, earlier: &Look) -> bool {
        self.showed < earlier.showed
    }

    /// By how much it was set forward since then, if it was: by more than one who is kept from looking for a moment could think.
    pub(crate) fn set_forward_since(&self, earlier: &Look) -> Option<Duration> {
        const LEAST: Duration = Duration::from_secs(1);
        let showed = Duration::from_nanos(self.showed.as_nanos().saturating_sub(earlier.showed.as_nanos()));
        let by = showed.saturating_sub(self.passed.saturating_sub(earlier.passed));
        (by > LEAST).then_some(by)
    }
}
