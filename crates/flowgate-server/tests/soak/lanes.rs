//! What is sent, and what is promised for it.

use std::time::Duration;

/// A key, or a queue, with what holds for it.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// How many may be in flight at once.
    pub(crate) parallelism: Option<usize>,
    /// How many may start in a second.
    pub(crate) rate: Option<u64>,
    /// Whether they come in the order in which they were sent: a queue, and not a key.
    pub(crate) is_in_order: bool,
}

const fn key(name: &'static str, parallelism: Option<usize>, rate: Option<u64>) -> Lane {
    Lane { name, parallelism, rate, is_in_order: false }
}

/// The last one is the queue.
pub(crate) const LANES: [Lane; 6] = [
    key("one", Some(1), None),
    key("two", Some(2), None),
    key("nine", Some(9), None),
    key("thirty-a-second", None, Some(30)),
    key("both", Some(3), Some(40)),
    Lane { name: "in-order", parallelism: Some(1), rate: None, is_in_order: true },
];

impl Lane {
    /// The limits as they are sent.
    pub(crate) fn limits(&self) -> String {
        let parallelism = self.parallelism.map(|parallelism| format!("parallelism={parallelism}"));
        let rate = self.rate.map(|rate| format!("rate={rate},period=1s"));
        parallelism.into_iter().chain(rate).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn of(name: &str) -> &'static Lane {
        LANES.iter().find(|lane| lane.name == name).unwrap_or_else(|| panic!("{name} is none of ours"))
    }
}

/// Whether somebody wants to be called back for it. Not in the queue, which would wait for that.
pub(crate) fn has_callback(lane: &Lane, number: usize) -> bool {
    !lane.is_in_order && number % 25 == 3
}

/// Whether it is cancelled as soon as it was taken.
pub(crate) fn is_cancelled(lane: &Lane, number: usize) -> bool {
    !lane.is_in_order && number % 50 == 11
}

/// How long it has to wait at least. One that is cancelled has to be there for that.
pub(crate) fn delay(lane: &Lane, number: usize) -> Duration {
    match number % 50 {
        _ if lane.is_in_order => Duration::ZERO,
        7 => Duration::from_secs(1),
        11 => Duration::from_secs(3),
        _ => Duration::ZERO,
    }
}

/// Numbers that need not be good, the same in each run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// One of so many.
    pub(crate) fn of(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}
