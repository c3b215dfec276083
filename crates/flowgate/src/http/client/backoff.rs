//! How long to wait before the next attempt.
//!
//! Owns the jitter of delays that double. It reads no clock.

use std::time::Duration;

use flowgate_core::backoff;

use crate::chance::sound;

/// Delays that double, up to a cap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) cap: Duration,
}

impl Backoff {
    /// The wait before retry number `attempt` (the first is 1): half of its delay is certain, the other half is chance, so
    /// that those who were refused together do not come back together. It is never less than what the server asked for;
    /// then the chance comes on top, for the server tells all of them the same.
    pub(super) fn delay(&self, attempt: u32, at_least: Duration, random: f64) -> Duration {
        let half = backoff(self.first, 2.0, self.cap, attempt) / 2;
        let random = sound(random);
        half.max(at_least).saturating_add(half.mul_f64(random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_cap_and_jitter_above_half() {
        // Seen to fail: with jitter from 0, the first retry comes at once.
        let backoff = Backoff { first: SECOND, cap: 30 * SECOND };
        let seconds = |attempt, random| backoff.delay(attempt, Duration::ZERO, random).as_secs_f64();
        for (attempt, full) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0), (6, 30.0), (40, 30.0)] {
            assert_eq!(seconds(attempt, 0.0), full / 2.0, "retry {attempt}, at least");
            assert_eq!(seconds(attempt, 0.5), full * 0.75, "retry {attempt}, on average");
            assert_eq!(seconds(attempt, 1.0), full, "retry {attempt}, at most");
        }
        for odd in [f64::NAN, f64::INFINITY, -3.0] {
            assert_eq!(seconds(1, odd), 0.5, "{odd}");
        }
        assert_eq!(seconds(1, 7.0), 1.0);
    }

    #[test]
    fn what_the_server_asks_for_is_the_least_and_chance_comes_on_top() {
        // Seen to fail: with the larger of both, all who were told 10 s come back at once.
        let backoff = Backoff { first: SECOND, cap: 30 * SECOND };
        for (asked, random, millis) in [
            (0, 0.0, 500),
            (0, 1.0, 1_000),
            (1, 0.0, 1_000),
            (1, 1.0, 1_500),
            (10, 0.0, 10_000),
            (10, 0.5, 10_250),
        ] {
            let delay = backoff.delay(1, asked * SECOND, random);
            assert_eq!(delay, Duration::from_millis(millis), "asked {asked} s, chance {random}");
        }
        assert_eq!(backoff.delay(1, Duration::MAX, 1.0), Duration::MAX);
    }
}
