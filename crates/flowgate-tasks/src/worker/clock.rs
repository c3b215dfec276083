//! The monotonic clock, by which leases and timeouts of this crate are counted.

use tokio::time::Instant;

/// The time now.
pub(crate) fn now() -> Instant {
    Instant::now()
}
