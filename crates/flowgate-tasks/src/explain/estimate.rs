//! When something should start, and how that is known.

use std::time::Duration;

use flowgate_core::{Rate, RateLook, Shape, Tick};
use serde::Serialize;

use super::{
    answer::Running,
    times::Served,
    words::{span, stand},
};

/// A moment in the future, as well as it can be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// In how many milliseconds.
    pub in_ms: u64,
    /// Whether it is no guess.
    pub is_exact: bool,
    /// How it is known.
    pub because: String,
}

impl Estimate {
    /// At a moment that is fixed.
    pub(super) fn at(in_ms: u64, because: impl Into<String>) -> Self {
        Estimate { in_ms, is_exact: true, because: because.into() }
    }

    /// A rate that allows one more after `wait`, with so many before it.
    pub(super) fn by_rate(wait: Duration, rate: &Rate, ahead: u64) -> Self {
        let (rate_of, period) = (u64::from(rate.rate()), rate.period().as_millis());
        let later = match rate.shape() {
            Shape::Window => (ahead / rate_of).saturating_mul(period),
            // One at a time, as it refills.
            Shape::Bucket { .. } => ahead.saturating_mul(period) / rate_of,
        };
        let in_ms = millis(wait).saturating_add(later);
        let because = format!("its key has the rate {rate}, and {ahead} {} ahead of it", stand(ahead));
        Estimate { in_ms, is_exact: ahead == 0, because }
    }

    /// A rate of which so much is left, with so many before it. `None`: it does not wait for the rate.
    pub(super) fn by_what_is_left(rate: &Rate, left: RateLook, now: Tick, ahead: u64) -> Option<Self> {
        let later = ahead.checked_sub(u64::from(left.remaining))?;
        let until_all = left.resets_at.since(now);
        let wait = match rate.shape() {
            Shape::Window => until_all,
            // It refills one at a time, and this is when all of it is back.
            Shape::Bucket { .. } => {
                let missing = left.limit.saturating_sub(left.remaining).saturating_sub(1);
                let step = Duration::from_millis(rate.period().as_millis()) / rate.rate();
                until_all.saturating_sub(step.saturating_mul(missing))
            }
        };
        Some(Estimate { is_exact: false, ..Estimate::by_rate(wait, rate, later) })
    }

    /// Slots of which all are taken, with so many before it, where work takes as long as it took lately: each slot comes free
    /// when its holder has had that time, and is taken again at once by the next in line. Who had more than that has as much
    /// again.
    pub(super) fn by_record(served: Served, holders: &[Running], slots: u32, ahead: u64) -> Self {
        let mean = millis(served.mean);
        let left = |held: u64| if held < mean { mean - held } else { mean };
        let mut free: Vec<u64> = holders.iter().map(|holder| left(holder.for_ms)).collect();
        // All slots are taken; where fewer hold them, some hold several, or there were too many to be told.
        let slots = (slots.max(1) as usize).min(free.len().max(1));
        free.resize(slots, 0);
        free.sort_unstable();
        let slots = slots as u64;
        let first = free.get((ahead % slots) as usize).copied().unwrap_or_default();
        let in_ms = first.saturating_add((ahead / slots).saturating_mul(mean));
        let because = format!(
            "the last {} took {} each on average, {slots} run at once, and {ahead} {} ahead of it",
            served.count,
            span(mean),
            stand(ahead)
        );
        Estimate { in_ms, is_exact: false, because }
    }

    /// Whichever is later: it needs both.
    pub(super) fn and(self, other: Option<Estimate>) -> Self {
        match other {
            Some(other) if other.in_ms > self.in_ms => other,
            _ => self,
        }
    }

    /// The same where nothing was recorded. A slot that has been held for a while is, on average, held for as long again.
    pub(super) fn by_holders(holders: &[Running], slots: u32, ahead: u64) -> Option<Self> {
        let mean =
            holders.iter().map(|holder| holder.for_ms).sum::<u64>().checked_div(holders.len() as u64)?;
        let rounds = ahead / u64::from(slots.max(1));
        let first = mean / holders.len().max(1) as u64;
        let in_ms = first.saturating_add(rounds.saturating_mul(mean.saturating_mul(2)));
        let because = format!(
            "the running ones have run for {} on average, and {ahead} {} ahead of it",
            span(mean),
            stand(ahead)
        );
        Some(Estimate { in_ms, is_exact: false, because })
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    // Rounded up: what is due in half a millisecond is not due yet.
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(for_ms: u64) -> Running {
        let text = String::new;
        Running { task: 1, kind: text(), queue: text(), key: None, worker: text(), for_ms, lease_ms: None }
    }

    #[test]
    fn a_slot_comes_free_when_its_holder_had_the_time_that_work_takes() {
        let served = Served { mean: Duration::from_millis(1000), count: 9 };
        let holders = [holder(100), holder(700), holder(5000)];
        let starts = |ahead| Estimate::by_record(served, &holders, 3, ahead).in_ms;
        // 300, 900 and 1000 ms are left; then each slot is taken again for a second.
        assert_eq!([0, 1, 2, 3, 4, 6].map(starts), [300, 900, 1000, 1300, 1900, 2300]);
        assert_eq!(Estimate::by_record(served, &[], 3, 0).in_ms, 0);
        let told = Estimate::by_record(served, &holders, 3, 4);
        assert_eq!(
            told.because,
            "the last 9 took 1.0 s each on average, 3 run at once, and 4 are ahead of it"
        );
    }

    #[test]
    fn what_was_spent_of_a_window_counts_for_those_in_line() {
        // Seen to fail: with what is left not taken off, one whom this window lets start was to wait for the next.
        let period = "1s".parse().expect("a period");
        let now = Tick::from_nanos(5_000_000_000);
        let window = Rate::window(10, period).expect("a rate");
        let left = RateLook { limit: 10, remaining: 2, resets_at: now.after(Duration::from_millis(400)) };
        let starts = |ahead| Estimate::by_what_is_left(&window, left, now, ahead).map(|told| told.in_ms);
        assert_eq!([1, 2, 11, 12].map(starts), [None, Some(400), Some(400), Some(1400)]);
        let bucket = Rate::bucket(10, period, 5).expect("a rate");
        let left = RateLook { limit: 5, remaining: 2, resets_at: now.after(Duration::from_millis(250)) };
        let starts = |ahead| Estimate::by_what_is_left(&bucket, left, now, ahead).map(|told| told.in_ms);
        assert_eq!([1, 2, 3].map(starts), [None, Some(50), Some(150)]);
    }

    #[test]
    fn a_rate_is_waited_for_by_the_window_or_one_at_a_time() {
        let period = "1s".parse().expect("a period");
        let window = Rate::window(10, period).expect("a rate");
        let bucket = Rate::bucket(10, period, 5).expect("a rate");
        let wait = Duration::from_millis(400);
        assert_eq!(
            [0, 9, 10, 25].map(|ahead| Estimate::by_rate(wait, &window, ahead).in_ms),
            [400, 400, 1400, 2400]
        );
        assert_eq!([0, 1, 25].map(|ahead| Estimate::by_rate(wait, &bucket, ahead).in_ms), [400, 500, 2900]);
        let later = Estimate::by_rate(wait, &window, 25);
        assert_eq!(Estimate::at(1, "soon").and(Some(later.clone())), later);
    }
}
