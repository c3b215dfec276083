//! What a shared gate looks like right now.

use std::time::Duration;

use flowgate_core::{Key, Limits, Refusal, Tick};

use super::document::Document;
use crate::gate::{Allowance, LaneLook, Phase, Refusals};

/// The state of this process's part of a shared gate. For a lane as the whole fleet uses it, ask
/// [`Gate::look_key`](super::Gate::look_key).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Look {
    /// The limits of the whole fleet, as far as this process has heard.
    pub limits: Limits,
    /// Whether the gate lets anyone in.
    pub phase: Phase,
    /// How many slots this process holds, over all lanes.
    pub in_use: u64,
    /// How many of this process stand in line, over all lanes.
    pub waiting: u64,
    /// How long the longest-waiting one of this process has waited.
    pub oldest_wait: Option<Duration>,
    /// How many lanes this process keeps in mind.
    pub lanes: usize,
    /// How many entries of this process were refused, by reason.
    pub refusals: Refusals,
    /// How many entries of this process were let in uncounted, while the store did not answer.
    pub uncounted: u64,
    /// The store's last failure, while it lasts.
    pub trouble: Option<String>,
}

/// How a lane stood when it was looked at last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) in_use: u32,
    pub(crate) waiting: u32,
    pub(crate) rate: Option<Allowance>,
}

impl Standing {
    pub(crate) fn of(document: &Document, now: Tick) -> Self {
        let rate = document.rate(now).map(|look| Allowance::new(look, now));
        Standing { in_use: document.in_use(), waiting: document.waiting(), rate }
    }

    /// The refusal, with these figures.
    pub(crate) fn on(self, mut refusal: Refusal, max: Option<u32>) -> Refusal {
        (refusal.in_use, refusal.waiting, refusal.max) = (self.in_use, self.waiting, max);
        refusal
    }

    pub(crate) fn to_lane_look(self, key: Option<&Key>, limits: Limits) -> LaneLook {
        LaneLook {
            key: key.cloned().unwrap_or(Key::EMPTY),
            limits,
            is_pinned: false,
            in_use: self.in_use,
            waiting: self.waiting,
            oldest_wait: None,
            rate: self.rate,
        }
    }
}
