//! What this process counts while it works.
//!
//! Owns counters that cost an atomic addition each, and no lock.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use flowgate::gate::Look;
use http::StatusCode;
use serde_json::{Value, json};

use super::writes::Writes;
use crate::{
    api::Gates,
    clock::{self, Stopwatch},
};

/// The upper ends of a histogram's parts, in seconds.
pub(super) const BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Times, by size.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Retried,
    Failed,
}

impl Outcome {
    pub(super) const ALL: [(Outcome, &'static str); 3] =
        [(Outcome::Delivered, "delivered"), (Outcome::Retried, "retried"), (Outcome::Failed, "failed")];
}

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(super) started: u64,
    pub(super) accepted: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) attempts: [AtomicU64; 3],
    pub(super) in_flight: AtomicI64,
    pub(super) durations: Histogram,
    pub(super) waits: Histogram,
    /// By the first digit of the status.
    pub(super) requests: [AtomicU64; 5],
    pub(super) lines_dropped: AtomicU64,
    pub(super) spans_sent: AtomicU64,
    pub(super) spans_dropped: AtomicU64,
    pub(crate) writes: Writes,
    gates: OnceLock<Gates>,
}

/// An attempt that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    meter: &'a Meter,
    stopwatch: Stopwatch,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Meter {
            started: clock::now(),
            accepted: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            attempts: Default::default(),
            in_flight: AtomicI64::default(),
            durations: Histogram::default(),
            waits: Histogram::default(),
            requests: Default::default(),
            lines_dropped: AtomicU64::default(),
            spans_sent: AtomicU64::default(),
            spans_dropped: AtomicU64::default(),
            writes: Writes::default(),
            gates: OnceLock::new(),
        }
    }

    /// The gates before the API are to be seen, too.
    pub(crate) fn watch(&self, gates: Gates) {
        // There is one API; a second one would be a slip that changes nothing.
        let _ = self.gates.set(gates);
    }

    /// The gates before the API right now, by name.
    pub(crate) fn gates(&self) -> impl Iterator<Item = (&'static str, Look)> {
        self.gates.get().map(Gates::look).into_iter().flatten()
    }

    /// How many requests to the API are under way.
    pub(crate) fn requests_under_way(&self) -> u64 {
        self.gates.get().map_or(0, |gates| gates.requests.look().in_use)
    }

    /// How many attempts are under way.
    pub(crate) fn under_way(&self) -> u64 {
        u64::try_from(self.in_flight.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// What was counted of messages, for whoever watches.
    pub(crate) fn counts(&self) -> Value {
        let [delivered, retried, failed] =
            self.attempts.each_ref().map(|count| count.load(Ordering::Relaxed));
        json!({
            "accepted": self.accepted.load(Ordering::Relaxed),
            "delivered": delivered,
            "retried": retried,
            "failed": failed,
            "in_flight": self.in_flight.load(Ordering::Relaxed).max(0),
        })
    }

    /// A message was taken in, or had been before.
    pub(crate) fn accepted(&self, is_duplicate: bool) {
        let counter = if is_duplicate { &self.duplicates } else { &self.accepted };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A message starts for the first time, so long after it might have.
    pub(crate) fn waited(&self, wait: Duration) {
        self.waits.add(wait);
    }

    /// An attempt begins.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        UnderWay { meter: self, stopwatch: Stopwatch::start() }
    }

    pub(super) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5);
        self.requests[class - 1].fetch_add(1, Ordering::Relaxed);
    }

    /// Lines of the log were dropped.
    pub(crate) fn lines_dropped(&self, count: u64) {
        self.lines_dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Spans went to the collector of traces, or were dropped.
    pub(crate) fn spans(&self, sent: u64, dropped: u64) {
        self.spans_sent.fetch_add(sent, Ordering::Relaxed);
        self.spans_dropped.fetch_add(dropped, Ordering::Relaxed);
    }
}

impl UnderWay<'_> {
    /// It ended with an answer, or without.
    pub(crate) fn ended(self, outcome: Outcome) {
        self.meter.attempts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.meter.durations.add(self.stopwatch.elapsed());
    }
}

/// One that is cut off is not under way any more, and no attempt that ended.
impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.meter.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Histogram {
    fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let part = BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(BOUNDS.len());
        self.counts[part].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// How many are in each part, and the sum of all in seconds.
    pub(super) fn read(&self) -> ([u64; BOUNDS.len() + 1], f64) {
        let counts = std::array::from_fn(|part| self.counts[part].load(Ordering::Relaxed));
        (counts, self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_counts_once_and_one_cut_off_is_no_longer_under_way() {
        let meter = Meter::new();
        let (ended, cut) = (meter.begin(), meter.begin());
        assert_eq!(meter.in_flight.load(Ordering::Relaxed), 2);
        ended.ended(Outcome::Retried);
        drop(cut);
        assert_eq!(meter.in_flight.load(Ordering::Relaxed), 0);
        let counts = meter.attempts.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [0, 1, 0]);
        assert_eq!(meter.durations.read().0.iter().sum::<u64>(), 1);
    }

    #[test]
    fn a_time_is_in_the_part_that_ends_with_it() {
        let histogram = Histogram::default();
        for millis in [5, 6, 300_000, 300_001] {
            histogram.add(Duration::from_millis(millis));
        }
        let (counts, sum) = histogram.read();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (1, 1, 1, 1));
        assert!((sum - 600.012).abs() < 1e-9, "{sum}");
    }
}
