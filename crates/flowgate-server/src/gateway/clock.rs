//! Time as a worker counts it.
//!
//! Owns the only clock of the gateway: a count of ticks that the worker's own loop moves on. What is under way sets and looks
//! at its deadlines by reading that count, so a request never reads the time and never arms a timer.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant, SystemTime},
};

/// How often a worker looks at its deadlines. Timeouts are kept to within two of these.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// What a worker did not see pass does not count: one that was kept from running for a while must not find everybody late.
const MOST_AT_ONCE: u32 = 4;

/// A point in time, in ticks since the worker started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// A length of time, in ticks. Seven years are enough, and every connection keeps one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span(u32);

/// What time it is, as of the last tick.
#[derive(Debug)]
pub(super) struct Clock {
    /// When the present tick began.
    since: Cell<Instant>,
    now: Cell<Moment>,
    /// What `Date` says, written when it is first asked for in a tick.
    date: RefCell<(Moment, String)>,
}

impl Moment {
    /// Later than all others.
    pub(super) const NEVER: Moment = Moment(u64::MAX);

    /// So much later.
    pub(super) fn after(self, Span(ticks): Span) -> Self {
        Moment(self.0.saturating_add(u64::from(ticks)))
    }
}

impl Span {
    /// What is left of it when so much is over.
    pub(super) fn less(self, over: Span) -> Self {
        Span(self.0.saturating_sub(over.0))
    }

    /// At least as long as the duration: the present tick may be nearly over, so one more than it takes.
    pub(super) fn of(duration: Duration) -> Self {
        let ticks = duration.as_millis().div_ceil(TICK.as_millis()) + 1;
        Span(u32::try_from(ticks).unwrap_or(u32::MAX))
    }
}

impl Clock {
    pub(super) fn new() -> Self {
        let date = RefCell::new((Moment::NEVER, String::new()));
        Clock { since: Cell::new(Instant::now()), now: Cell::new(Moment(0)), date }
    }

    /// As of the last tick.
    pub(super) fn now(&self) -> Moment {
        self.now.get()
    }

    /// When a span that begins now will be over.
    pub(super) fn after(&self, span: Span) -> Moment {
        self.now.get().after(span)
    }

    /// What the header `Date` says now.
    pub(super) fn with_date(&self, put: impl FnOnce(&str)) {
        let mut date = self.date.borrow_mut();
        if date.0 != self.now() {
            *date = (self.now(), httpdate::fmt_http_date(SystemTime::now()));
        }
        put(&date.1);
    }

    /// Moves the count on to the present.
    pub(super) fn turn(&self) {
        self.turn_to(Instant::now());
    }

    fn turn_to(&self, present: Instant) {
        let since = self.since.get();
        let passed = present.saturating_duration_since(since).as_nanos() / TICK.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.since.set(since + TICK * passed);
        self.now.set(self.now.get().after(Span(passed.min(MOST_AT_ONCE))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_never_shorter_than_its_duration() {
        // Seen to fail: without the extra tick, a deadline set at the end of a tick is up to a whole tick early.
        for (millis, ticks) in [(1, 2), (50, 2), (51, 3), (1_000, 21)] {
            assert_eq!(Span::of(Duration::from_millis(millis)), Span(ticks), "{millis} ms");
        }
    }

    #[test]
    fn a_worker_that_was_kept_from_running_does_not_find_everybody_late() {
        // Seen to fail: with all the time counted that has passed.
        let clock = Clock::new();
        let start = clock.since.get();
        let deadline = clock.after(Span(20));
        clock.turn_to(start + TICK * 3);
        assert_eq!(clock.now(), Moment(3));
        clock.turn_to(start + TICK * 1_000);
        assert_eq!(clock.now(), Moment(7));
        clock.turn_to(start + TICK * 1_001);
        assert_eq!(clock.now(), Moment(8), "and then time goes on as ever");
        assert!(clock.now() < deadline);
    }
}
