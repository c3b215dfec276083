//! How long the line was, over time.
//!
//! Owns a bounded picture of a run of any length: when it is full, pairs of its spans become one.

/// The most spans that are kept.
const MOST: usize = 256;

/// The longest line in each of at most 256 equal spans.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// Nanoseconds of one span.
    width: u64,
    peaks: Vec<u32>,
    now: u32,
}

impl Timeline {
    pub(super) fn new() -> Self {
        Timeline { width: 1_000_000, peaks: vec![0], now: 0 }
    }

    /// From `at` on, so many wait.
    pub(super) fn note(&mut self, at: u64, waiting: u32) {
        self.reach(at);
        self.now = waiting;
        if let Some(last) = self.peaks.last_mut() {
            *last = waiting.max(*last);
        }
    }

    /// Spans up to this moment: in those that begin meanwhile, as many wait as did before.
    fn reach(&mut self, at: u64) {
        while at / self.width >= MOST as u64 {
            self.width *= 2;
            self.peaks = self.peaks.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
        }
        let spans = (at / self.width) as usize + 1;
        if spans > self.peaks.len() {
            self.peaks.resize(spans, self.now);
        }
    }

    /// The spans, each with its begin in seconds.
    pub(super) fn points(&self) -> impl Iterator<Item = (f64, u32)> + '_ {
        let seconds = self.width as f64 / 1e9;
        self.peaks.iter().enumerate().map(move |(number, &peak)| (number as f64 * seconds, peak))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_any_length_keeps_its_peaks() {
        let mut timeline = Timeline::new();
        timeline.note(0, 3);
        timeline.note(5_000_000, 9);
        timeline.note(6_000_000, 2);
        timeline.note(60_000_000_000, 0);
        let points: Vec<_> = timeline.points().collect();
        assert!(points.len() <= MOST, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.1).max(), Some(9));
        assert_eq!(points[100].1, 2, "between two notes it is as it was");
        assert_eq!(points[points.len() - 1].1, 2);
    }
}
