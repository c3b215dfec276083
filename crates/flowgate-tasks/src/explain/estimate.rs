//! When something should start, and how that is known.

use std::time::Duration;

use flowgate_core::Rate;
use serde::Serialize;

use super::answer::Running;

/// A moment in the future, as well as it can be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// In so long.
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
        let windows = ahead / u64::from(rate.rate());
        let in_ms = millis(wait).saturating_add(windows.saturating_mul(rate.period().as_millis()));
        let because = format!("its key starts {rate}, and {ahead} stand before it");
        Estimate { in_ms, is_exact: ahead == 0, because }
    }

    /// Slots of which all are taken, with so many before it. A slot that has been held for a while is, on average, held for as
    /// long again.
    pub(super) fn by_service(holders: &[Running], slots: u32, ahead: u64) -> Option<Self> {
        let mean =
            holders.iter().map(|holder| holder.for_ms).sum::<u64>().checked_div(holders.len() as u64)?;
        let rounds = ahead / u64::from(slots.max(1));
        let first = mean / holders.len().max(1) as u64;
        let in_ms = first.saturating_add(rounds.saturating_mul(mean.saturating_mul(2)));
        let because = format!(
            "those that run have been running for {} on average, and {ahead} stand before it",
            super::words::span(mean)
        );
        Some(Estimate { in_ms, is_exact: false, because })
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    // Rounded up: what is due in half a millisecond is not due yet.
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
