//! How long a lease is relied on by whoever has it.
//!
//! Owns that rule for all of them: passes of a fleet, and what workers hold. It reads no clock.

use std::time::Duration;

/// How long a lease is relied on, counted from when it was asked for: a little less than it lasts in the store, whose
/// clock may run a little faster.
pub fn relied_on(lease: Duration) -> Duration {
    lease - lease / 32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::relied_on;

    #[test]
    fn t5_a_lease_is_over_here_before_a_store_whose_clock_runs_a_little_faster_gives_anything_away() {
        // Seen to fail: with the whole lease relied on, it was good for longer than the store kept it.
        for millis in [100, 15_000, 86_400_000] {
            let lease = Duration::from_millis(millis);
            assert!(
                relied_on(lease) <= lease.mul_f64(1.0 / 1.03),
                "{lease:?}, by a clock that is 3 % faster"
            );
            assert!(relied_on(lease) >= lease - lease / 16, "{lease:?}, for nearly all of it");
        }
    }
}
