//! What came of a run.
//!
//! Owns the counts: waits in a histogram of bounded size, what was in flight over time, and refusals by reason.

use flowgate_core::Reason;

use super::timeline::Timeline;

/// Each power of two is cut into so many equal parts: a quantile is off by less than a 128th.
const PARTS: u32 = 7;

/// Times in nanoseconds, by size.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    fn new() -> Self {
        Histogram { counts: vec![0; 64 << PARTS], count: 0, sum: 0, max: 0 }
    }

    fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// In nanoseconds; zero where there is nothing.
    pub(super) fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    pub(super) fn max(&self) -> f64 {
        self.max as f64
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// So large is at most this share of them.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        // The upper end of what is in the bucket, and never more than there was.
        found.map_or(0.0, |bucket| (lowest(bucket + 1) - 1).min(self.max) as f64)
    }
}

fn bucket(nanos: u64) -> usize {
    let bits = 64 - nanos.leading_zeros();
    if bits <= PARTS + 1 {
        return nanos as usize;
    }
    let shift = bits - PARTS - 1;
    ((shift as usize) << PARTS) + (nanos >> shift) as usize
}

/// The least that falls into a bucket.
fn lowest(bucket: usize) -> u64 {
    if bucket < 2 << PARTS {
        return bucket as u64;
    }
    let shift = (bucket >> PARTS) - 1;
    (((bucket & ((1 << PARTS) - 1)) + (1 << PARTS)) as u64) << shift
}

/// All that is counted of a run.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) waits: Histogram,
    pub(super) refusals: [u64; Reason::ALL.len()],
    pub(super) timeline: Timeline,
    /// How many ended within the window.
    pub(super) ended: u64,
    /// How many waited when the window closed.
    pub(super) left: u32,
    pub(super) most_in_use: u32,
    pub(super) most_waiting: u32,
    /// Slots × nanoseconds within the window.
    pub(super) busy: u128,
    /// The same, of the key that had most.
    pub(super) busiest: u128,
    /// Nanoseconds of the window.
    pub(super) window: u64,
    /// When the last one ended.
    pub(super) last: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally {
            waits: Histogram::new(),
            refusals: [0; Reason::ALL.len()],
            timeline: Timeline::new(),
            ended: 0,
            left: 0,
            most_in_use: 0,
            most_waiting: 0,
            busy: 0,
            busiest: 0,
            window: 0,
            last: 0,
        }
    }

    pub(super) fn started(&mut self, wait: u64) {
        self.waits.add(wait);
    }

    pub(super) fn refused(&mut self, reason: Reason) {
        self.refusals[reason.index()] += 1;
    }

    /// Of those who came.
    pub(super) fn refused_in_all(&self) -> u64 {
        self.refusals.iter().sum()
    }

    /// Ends in a second, over the window.
    pub(super) fn throughput(&self) -> f64 {
        self.ended as f64 / self.seconds()
    }

    /// Slots in use, in the mean over the window.
    pub(super) fn in_flight(&self) -> f64 {
        self.busy as f64 / 1e9 / self.seconds()
    }

    /// Which share of its slots the busiest key had in use.
    pub(super) fn utilisation(&self, max: Option<u32>) -> Option<f64> {
        Some(self.busiest as f64 / 1e9 / self.seconds() / f64::from(max?))
    }

    pub(super) fn seconds(&self) -> f64 {
        self.window.max(1) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_begins_where_the_one_before_ends() {
        for nanos in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX / 3]) {
            let at = bucket(nanos);
            assert!(lowest(at) <= nanos && nanos < lowest(at + 1), "{nanos} in {at}");
            assert!((lowest(at + 1) - lowest(at)) as f64 <= (nanos as f64 / 128.0).max(1.0), "{nanos}");
        }
        assert!(bucket(u64::MAX) < 64 << PARTS);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut waits = Histogram::new();
        (1..=1000).rev().for_each(|number| waits.add(number * 1_000_000));
        for (share, want) in [(0.5, 500e6), (0.99, 990e6), (1.0, 1000e6)] {
            let got = waits.quantile(share);
            assert!((got / want - 1.0).abs() < 0.008, "{share}: {got}");
        }
        assert_eq!(waits.mean(), 500.5e6);
        assert_eq!(Histogram::new().quantile(0.5), 0.0);
    }
}
