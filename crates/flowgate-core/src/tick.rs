//! A moment, as data.
//!
//! Owns the one representation of time in the rules: nanoseconds since an origin that the caller chose. It never
//! asks what time it is.

use std::time::Duration;

/// A moment, in nanoseconds since an origin that the clock chose. By contract, time only goes on; a
/// [`Rate`](crate::Rate) says what happens where a store's clock is set back all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// The origin.
    pub const ZERO: Tick = Tick(0);
    /// Later than every other moment: for what is never due.
    pub const NEVER: Tick = Tick(u64::MAX);

    /// Creates the moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Tick(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns this moment plus `span`, or [`Tick::NEVER`] if that is too far away to be counted.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Tick(u64::try_from(span.as_nanos()).map_or(u64::MAX, |nanos| self.0.saturating_add(nanos)))
    }

    /// Returns how long after `earlier` this is; zero if it is not.
    pub const fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
