//! What is seen at one look, and what the last looks saw.
//!
//! Owns the form in which the page gets it, and the bounds on what is remembered.

use std::collections::{HashMap, HashSet, VecDeque};

use flowgate_core::Rate;
use flowgate_tasks::store::{Census, KeySpent, MOST_COUNTED, QueueLook};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{api::key_view, office::Tally};

/// So many looks are remembered: a minute and a half, if each takes its second.
pub(super) const REMEMBERED: usize = 90;

/// The server at one moment. What was done is counted since the look before, by this server alone; the rest is the store's.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) in_flight: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cap: Option<u32>,
    pub(super) waiting: u64,
    pub(super) delayed: u64,
    pub(super) created: u64,
    pub(super) delivered: u64,
    pub(super) retried: u64,
    pub(super) failed: u64,
    /// How long the span is in which it was counted.
    pub(super) span_ms: u64,
    pub(super) keys: u64,
    pub(super) paused_keys: u64,
    pub(super) pinned_keys: u64,
    /// Messages that are dead.
    pub(super) dead: u64,
    /// There may be more of them: counting ends somewhere.
    pub(super) is_dead_more: bool,
    /// Queues that are paused, those of the API among them.
    pub(super) paused_queues: u64,
    /// Workers that are alive, this server's own among them.
    pub(super) workers: u64,
}

/// What is counted over everything, and therefore not at every look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    pub(super) census: Census,
    /// Of the dead tasks, those that are messages.
    pub(super) letters: u64,
    pub(super) paused_fifo: u64,
    pub(super) workers: u64,
}

/// What one look saw.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) totals: Totals,
    /// The keys that somebody watches, as far as the store knows them.
    pub(super) keys: HashMap<String, Value>,
    /// Those that were asked for: whoever came while the look was under way is not among them.
    pub(super) looked_for: HashSet<String>,
    /// Why there is no more to see.
    pub(super) trouble: Option<String>,
}

/// The last looks at one thing, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Past<T>(VecDeque<T>);

impl<T: Clone> Past<T> {
    pub(super) fn push(&mut self, seen: T) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(seen);
    }

    pub(super) fn all(&self) -> Vec<T> {
        self.0.iter().cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Totals {
    pub(super) fn new(at: u64, queues: &[QueueLook], cap: Option<u32>, rounds: Rounds) -> Self {
        let Rounds { census, letters, paused_fifo, workers } = rounds;
        let paused = queues.iter().filter(|queue| queue.is_paused).count() as u64;
        Totals {
            at,
            in_flight: queues.iter().map(|queue| u64::from(queue.in_use)).sum(),
            cap,
            waiting: queues.iter().map(|queue| queue.waiting).sum(),
            delayed: queues.iter().map(|queue| queue.delayed).sum(),
            keys: census.keys,
            paused_keys: census.paused_keys,
            pinned_keys: census.pinned_keys,
            dead: letters,
            is_dead_more: letters > 0 && census.dead >= u64::from(MOST_COUNTED),
            paused_queues: paused + paused_fifo,
            workers,
            ..Totals::default()
        }
    }

    /// With what was done between two looks.
    pub(super) fn done(mut self, before: Tally, now: Tally, span_ms: u64) -> Self {
        self.created = now.created.saturating_sub(before.created);
        self.delivered = now.delivered.saturating_sub(before.delivered);
        self.retried = now.retried.saturating_sub(before.retried);
        self.failed = now.failed.saturating_sub(before.failed);
        self.span_ms = span_ms;
        self
    }
}

/// A key, as the API has it and with what the API's form has no place for.
pub(super) fn key(spent: &KeySpent) -> Value {
    let mut view = key_view(spent);
    let key = &spent.key;
    view["delayed"] = json!(key.delayed);
    view["isLatest"] = json!(key.is_latest);
    view["isMore"] = json!(key.waiting >= u64::from(MOST_COUNTED));
    if let Some(pinned) = &key.pinned {
        view["pinnedMax"] = json!(pinned.max());
        view["pinnedRate"] = json!(pinned.rate().map(ToString::to_string));
        view["canPinAgain"] = json!(pinned.rate().is_none_or(can_be_said));
    }
    if let Some(sent) = &key.sent {
        view["sentMax"] = json!(sent.max());
        view["sentRate"] = json!(sent.rate().map(ToString::to_string));
    }
    if let Some(rate) = &spent.rate {
        // With a smooth rate that is less than may start in a period.
        view["rateAtOnce"] = json!(rate.limit);
        view["rateEndsAt"] = json!(rate.resets_at.as_nanos() / 1_000_000);
    }
    view
}

/// Whether a pin can name this rate: whole seconds, and either a window or what `smooth` makes of it.
fn can_be_said(rate: &Rate) -> bool {
    let (count, period) = (rate.rate(), rate.period());
    let is_as = |said: Result<Rate, _>| said.is_ok_and(|said: Rate| said == *rate);
    period.as_nanos().is_multiple_of(1_000_000_000)
        && (is_as(Rate::window(count, period)) || is_as(Rate::smooth(count, period)))
}

#[cfg(test)]
mod tests {
    use flowgate_core::Period;

    use super::*;

    #[test]
    fn f6_only_a_pin_that_can_be_said_again_can_be_undone() {
        // Seen to fail: with each period of whole seconds taken for one that can be said, a bucket came back as a window.
        let period = |text: &str| text.parse::<Period>().expect("a period");
        let said = |rate: Result<Rate, _>| can_be_said(&rate.expect("a rate"));
        assert!(said(Rate::window(5, period("60s"))));
        assert!(said(Rate::smooth(90, period("60s"))));
        assert!(!said(Rate::bucket(90, period("60s"), 40)), "how many at once is not said");
        assert!(!said(Rate::window(5, period("1500ms"))), "nor are parts of a second");
    }
}
