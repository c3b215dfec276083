//! What may happen, at random.

use std::time::Duration;

use flowgate_core::Limits;
use proptest::prelude::*;

use crate::kit::max;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Send {
        sent: Sent,
        count: usize,
    },
    /// A worker settles some of what it holds in this way, and claims up to so many.
    Turn {
        worker: usize,
        settle: usize,
        end: Ending,
        claim: u32,
    },
    /// One that was taken from its worker, or settled before, is settled.
    SettleLate {
        which: usize,
    },
    Beat {
        worker: usize,
    },
    Leave {
        worker: usize,
    },
    /// Ten seconds pass, and upkeep comes by.
    Step,
    ClusterCap(Option<u32>),
    Queue {
        queue: usize,
        priority: i32,
        max: Option<u32>,
    },
    PauseQueue {
        queue: usize,
        is_paused: bool,
    },
    PauseKey {
        key: usize,
        is_paused: bool,
    },
    Pin {
        key: usize,
        max: Option<u32>,
    },
    ResetRate,
    Cancel {
        which: usize,
    },
    Revive {
        which: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Done,
    FailedAtOnce,
    FailedForAWhile,
    Dead,
    Cancelled,
    Returned,
    Lost,
}

/// A task as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) queue: usize,
    pub(super) key: Option<usize>,
    pub(super) terms: Terms,
    pub(super) priority: i16,
    pub(super) weight: u32,
    /// In steps, and half of one.
    pub(super) delay: Option<u32>,
    pub(super) good_until: Option<u32>,
    pub(super) attempts: u32,
}

/// Limits of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Terms {
    None,
    Max(u32),
    /// Of the key with a rate only.
    Rate,
    RateAndMax,
}

pub(super) const QUEUES: [&str; 3] = ["one", "two", "three"];
/// Two with a max, one with a rate, one whose newest limits govern.
pub(super) const KEYS: [&str; 4] = ["max", "other", "rate", "latest"];
pub(super) const RATED: usize = 2;
pub(super) const LATEST: usize = 3;
/// Starts in a window, and steps that a window lasts.
pub(super) const RATE: (u32, u64) = (3, 2);

impl Terms {
    pub(super) fn limits(self) -> Option<Limits> {
        let rate = || Limits::builder().rate(RATE.0, "15s");
        match self {
            Terms::None => None,
            Terms::Max(most) => Some(max(most)),
            Terms::Rate => Some(rate().build().expect("limits")),
            Terms::RateAndMax => Some(rate().max(2).build().expect("limits")),
        }
    }

    pub(super) fn max(self) -> Option<u32> {
        match self {
            Terms::None | Terms::Rate => None,
            Terms::Max(most) => Some(most),
            Terms::RateAndMax => Some(2),
        }
    }
}

/// The span that is over after this many more steps.
pub(super) fn span(steps: u32) -> Duration {
    Duration::from_secs(5) + Duration::from_secs(10) * (steps - 1)
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..80)
}

/// A worker that offers so many slots while something happens, for each that does: a send may claim for it. Apart from those, so
/// that histories that were found before stay what they were.
pub(super) fn offers() -> impl Strategy<Value = Vec<Option<(usize, u32)>>> {
    prop::collection::vec(prop::option::of((0..3usize, 1..6u32)), 80)
}

fn op() -> impl Strategy<Value = Op> {
    let worker = 0..3usize;
    prop_oneof![
        8 => (sent(), 1..4usize).prop_map(|(sent, count)| Op::Send { sent, count }),
        10 => (worker.clone(), 0..4usize, ending(), 0..6u32)
            .prop_map(|(worker, settle, end, claim)| Op::Turn { worker, settle, end, claim }),
        1 => (0..50usize).prop_map(|which| Op::SettleLate { which }),
        2 => worker.clone().prop_map(|worker| Op::Beat { worker }),
        1 => worker.prop_map(|worker| Op::Leave { worker }),
        3 => Just(Op::Step),
        1 => prop::option::of(1..6u32).prop_map(Op::ClusterCap),
        1 => (0..3usize, 0..3i32, prop::option::of(1..4u32))
            .prop_map(|(queue, priority, max)| Op::Queue { queue, priority, max }),
        1 => (0..3usize, any::<bool>()).prop_map(|(queue, is_paused)| Op::PauseQueue { queue, is_paused }),
        1 => (0..4usize, any::<bool>()).prop_map(|(key, is_paused)| Op::PauseKey { key, is_paused }),
        1 => (0..2usize, prop::option::of(1..5u32)).prop_map(|(key, max)| Op::Pin { key, max }),
        1 => Just(Op::ResetRate),
        1 => (0..50usize).prop_map(|which| Op::Cancel { which }),
        1 => (0..50usize).prop_map(|which| Op::Revive { which }),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let wait = || prop_oneof![4 => Just(None), 1 => (1..4u32).prop_map(Some)];
    let key = prop::option::of(0..KEYS.len());
    (0..3usize, key, 0..4u32, -1..2i16, 1..3u32, wait(), wait(), 1..4u32).prop_map(
        |(queue, key, terms, priority, weight, delay, good_until, attempts)| {
            let terms = match (key, terms) {
                (None, _) => Terms::None,
                (Some(RATED), 0 | 1) => Terms::Rate,
                (Some(RATED), _) => Terms::RateAndMax,
                (Some(_), 0) => Terms::None,
                (Some(_), most) => Terms::Max(most),
            };
            let weight = weight.min(terms.max().unwrap_or(weight));
            Sent { queue, key, terms, priority, weight, delay, good_until, attempts }
        },
    )
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        6 => Just(Ending::Done),
        1 => Just(Ending::FailedAtOnce),
        1 => Just(Ending::FailedForAWhile),
        1 => Just(Ending::Dead),
        1 => Just(Ending::Cancelled),
        2 => Just(Ending::Returned),
        1 => Just(Ending::Lost),
    ]
}
