//! The discipline of a line: which waiter is next, and how long a waiter may stand in line.
//!
//! Owns the rule of CoDel with newest first ("controlled delay, adaptive LIFO"), as pure functions of a
//! [`Backlog`]. It keeps no line and no waiters: the caller has those, and says when a line begins, what
//! holds it, and when it is over.

use std::{fmt, time::Duration};

use crate::{Hold, OptionError, Tick};

const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// In which order a line moves, and how long a waiter may stand in it, apart from the timeout. It is built
/// and checked by [`LimitsBuilder::codel`](crate::LimitsBuilder::codel).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out, for as long as the timeout allows.
    #[default]
    Fifo,
    /// First in, first out, until the line has stood for a whole `interval`: then the lane is *backlogged*.
    /// While it is, the newest waiter is next, and nobody waits longer than `target`. The backlog ends when
    /// the line has become empty.
    #[non_exhaustive]
    Codel {
        /// How long one may wait while the lane is backlogged; above zero.
        target: Duration,
        /// How long a line has to stand until the lane is backlogged; at least `target`.
        interval: Duration,
    },
}

/// An end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where those stand that came first.
    Oldest,
    /// Where the one stands that came last.
    Newest,
}

/// Since when the line of one lane has stood: not empty, and held by nothing but slots. It lives as long as the line does.
///
/// Time under a pause or a spent rate says nothing about load, so it does not count: neither for the lane,
/// nor for its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    since: Tick,
}

impl Backlog {
    /// Counted from now on: somebody joined an empty line, a pause has ended, or the discipline is new here.
    pub const fn new(now: Tick) -> Self {
        Backlog { since: now }
    }

    /// Notes what holds back the next waiter. Call it whenever the line comes to a halt.
    pub fn held(&mut self, hold: Hold, now: Tick) {
        self.since = match hold {
            // Not before the rate allows one more does anybody wait for a slot.
            Hold::Rate { until } => until,
            Hold::Slots | Hold::Line => self.since.min(now),
            // The end of the pause begins anew.
            Hold::Paused => self.since,
        };
    }
}

impl Discipline {
    /// CoDel, if these are a target and an interval for it.
    pub(crate) fn codel(target: Duration, interval: Duration) -> Result<Self, OptionError> {
        let discipline = Discipline::Codel { target, interval };
        if !target.is_zero() && target <= interval && interval <= LONGEST {
            return Ok(discipline);
        }
        Err(OptionError::new(
            "codel",
            format_args!("target {target:?}, interval {interval:?}"),
            "a target above zero, and an interval from `target` to 366 days",
        ))
    }

    /// Whether the lane is backlogged.
    pub fn is_backlogged(&self, backlog: Backlog, now: Tick) -> bool {
        match self {
            Discipline::Fifo => false,
            Discipline::Codel { interval, .. } => backlog.since.after(*interval) <= now,
        }
    }

    /// At which end the next waiter stands.
    pub fn next(&self, backlog: Backlog, now: Tick) -> End {
        if self.is_backlogged(backlog, now) { End::Newest } else { End::Oldest }
    }

    /// When a waiter that came at `since` has waited too long, as things are now. The timeout of the limits
    /// holds as well.
    pub fn deadline(&self, backlog: Backlog, since: Tick, now: Tick) -> Tick {
        match self {
            Discipline::Fifo => Tick::NEVER,
            Discipline::Codel { target, interval } => {
                let patience = if self.is_backlogged(backlog, now) { target } else { interval };
                since.max(backlog.since).after(*patience)
            }
        }
    }

    /// When a line whose oldest waiter came at `oldest` has to be looked at again, if nothing else happens:
    /// the lane becomes backlogged, or the oldest waiter has waited too long. It is after `now`, if waiters
    /// that are too late now are gone.
    pub fn look_at(&self, backlog: Backlog, oldest: Tick, now: Tick) -> Tick {
        match self {
            Discipline::Codel { interval, .. } if !self.is_backlogged(backlog, now) => {
                backlog.since.after(*interval)
            }
            _ => self.deadline(backlog, oldest, now),
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discipline::Fifo => write!(f, "fifo"),
            Discipline::Codel { target, interval } => {
                write!(f, "codel target {target:?} interval {interval:?}")
            }
        }
    }
}
