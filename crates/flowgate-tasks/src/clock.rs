//! The time of day, as stores know it.
//!
//! The only file of this crate that reads the system's time. A store that keeps its own clock does not use it.

use std::time::{SystemTime, UNIX_EPOCH};

use flowgate_core::Tick;

/// A clock on the wall: nanoseconds since the Unix epoch. Unlike a monotonic one it means the same in every process.
pub trait Wall: Send + Sync + 'static {
    /// What it shows.
    fn now(&self) -> Tick;
}

/// The system's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWall;

impl Wall for SystemWall {
    fn now(&self) -> Tick {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Tick::ZERO.after(since)
    }
}
