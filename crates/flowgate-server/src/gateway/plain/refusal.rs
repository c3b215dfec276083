//! The answer to a refused plain request, as it was last written.
//!
//! Owns when it is the same again. Under overload nearly all refused requests get the same answer, and most
//! requests are refused.

use std::{cell::RefCell, time::Duration};

use flowgate::{Reason, http::Figures};

use super::response::{About, Writer};
use crate::gateway::{
    clock::{Clock, Moment},
    exchange::Turned,
};

/// The last answer to one whom a route turned away.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Refusals(RefCell<Last>);

#[derive(Debug, Default)]
struct Last {
    facts: Option<Facts>,
    text: Vec<u8>,
}

/// All that an answer of one route depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Facts {
    reason: Reason,
    max: Option<u32>,
    in_use: u32,
    waiting: u32,
    /// In whole seconds, as it is told.
    retry_after: Option<Duration>,
    /// The same holds of these.
    figures: (Option<Figures>, Option<Figures>),
    is_grpc: bool,
    about: About,
    /// What the header `Date` says depends on it.
    at: Moment,
}

impl Refusals {
    /// Writes the answer.
    pub(super) fn write(
        &self,
        turned: &Turned<'_>,
        is_grpc: bool,
        about: About,
        clock: &Clock,
        writer: &mut Writer,
    ) {
        let refusal = &turned.refusal;
        let (concurrency, rate) = turned.figures();
        let facts = Facts {
            reason: refusal.reason,
            max: refusal.max,
            in_use: refusal.in_use,
            waiting: refusal.waiting,
            retry_after: refusal.retry_after.map(in_seconds),
            figures: (concurrency, rate.map(told)),
            is_grpc,
            about,
            at: clock.now(),
        };
        let mut last = self.0.borrow_mut();
        if last.facts == Some(facts) {
            return writer.say(&last.text);
        }
        let text = writer.refuse(&turned.told(is_grpc), facts.figures, about, clock);
        last.text.clear();
        last.text.extend_from_slice(text);
        last.facts = Some(facts);
    }
}

/// Figures that are told alike are the same.
fn told(figures: Figures) -> Figures {
    match figures {
        Figures::Rate { limit, remaining, resets_in, window } => {
            Figures::Rate { limit, remaining, resets_in: in_seconds(resets_in), window }
        }
        other => other,
    }
}

/// Rounded up to whole seconds, which is how times are told.
fn in_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)))
}
