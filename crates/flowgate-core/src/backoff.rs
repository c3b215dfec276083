//! Pauses that grow with each failure.

use std::time::Duration;

/// The pause after failure number `attempt`, the first being 1: at first `first`, each time `factor` times as long, and
/// never more than `most`.
///
/// ```
/// # use std::time::Duration;
/// # use flowgate_core::backoff;
/// let pause = |attempt| backoff(Duration::from_secs(1), 2.0, Duration::from_secs(30), attempt);
/// assert_eq!(pause(1), Duration::from_secs(1));
/// assert_eq!(pause(4), Duration::from_secs(8));
/// assert_eq!(pause(1_000), Duration::from_secs(30));
/// assert_eq!(backoff(Duration::ZERO, 2.0, Duration::from_secs(30), u32::MAX), Duration::ZERO);
/// ```
pub fn backoff(first: Duration, factor: f64, most: Duration, attempt: u32) -> Duration {
    // Nothing stays nothing, though it grows beyond all numbers.
    if first.is_zero() {
        return Duration::ZERO;
    }
    let times = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = first.as_secs_f64() * factor.powi(times);
    Duration::try_from_secs_f64(grown).map_or(most, |pause| pause.min(most))
}
