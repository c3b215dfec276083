//! Rates: how many may start per period.
//!
//! Owns the two shapes, `window` and `bucket`, and their state, which is one 64-bit word either way: so a
//! rate check in memory is one compare-and-swap, and a store has one number to keep for each rate. It never
//! reads a clock.
//!
//! **Window.** At most `rate` starts per period, counted from the period's first start. The word is the end
//! of the running window in nanoseconds with its low bits replaced by the count of starts; for that the end
//! is rounded *up* to a multiple of the *grain*, the power of two above `rate`, in nanoseconds. So a window
//! is never shorter than its period, and longer by less than two nanoseconds per start it allows.
//!
//! **Bucket.** `burst` tokens, refilled one per `period / rate`. The word is the moment at which the bucket
//! will be full again (known as GCRA).
//!
//! **Clocks that are set back.** In memory time only goes on. In a store it is the database's, which an
//! operator or a failover may set back, and then a word lies further ahead than anybody could have written by
//! the clock of today. Up to one span (a period, or a whole bucket) beyond that it still holds: a small step
//! back must not give a window away. Beyond that it says nothing: so nobody waits longer than two spans, and
//! each such step costs at most one window or bucket too much.

use std::{fmt, num::NonZeroU32, time::Duration};

use crate::{OptionError, Period, Tick};

/// The longest time a bucket may take to refill from empty.
const MAX_REFILL_NANOS: u64 = 10 * 366 * 24 * 60 * 60 * 1_000_000_000;

/// A smooth rate lets start at once what refills in this time.
const SMOOTH_NANOS: u64 = 10_000_000;

/// How a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// In fixed windows: at most `rate` starts per period, counted from the period's first start.
    Window,
    /// As a token bucket: refilled steadily, never more than `burst` at once.
    Bucket {
        /// How many may start at once when nothing is used.
        burst: NonZeroU32,
    },
}

/// Limits how many may start per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    rate: NonZeroU32,
    period: Period,
    shape: Shape,
    /// The low bits of a window's word, which hold the count: the grain less one.
    mask: u64,
    /// The nanoseconds one token takes to refill, rounded up: never faster than asked. Kept, for a check must not divide.
    step: u64,
}

/// The state of a rate in one lane: a single word. By default nothing is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateState(u64);

/// What is left of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLook {
    /// How many may start at once when nothing is used: `rate`, or the bucket's `burst`.
    pub limit: u32,
    /// How many may start now.
    pub remaining: u32,
    /// When all of it is available again.
    pub resets_at: Tick,
}

impl RateState {
    /// Returns the word, to keep it in an atomic or a store.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Makes the state of a word that [`RateState::to_word`] returned.
    pub const fn from_word(word: u64) -> Self {
        RateState(word)
    }
}

impl Rate {
    /// Allows at most `rate` starts per `period`, counted from the period's first start.
    pub fn window(rate: u32, period: Period) -> Result<Self, OptionError> {
        let rate = Rate::new(rate, period, Shape::Window)?;
        // 64 grains to a period keep the rounding under 1.6 % at the very fastest rate, and far below it elsewhere.
        if rate.mask >= period.as_nanos() / 64 {
            let most = (period.as_nanos() / 64 + 1).next_power_of_two() / 2 - 1;
            return Err(OptionError::new(
                "rate",
                format_args!("{} per {period}", rate.rate),
                format!("1 to {most} per {period}"),
            ));
        }
        Ok(rate)
    }

    /// Allows `rate` starts per `period`, refilled steadily, and at most `burst` at once.
    pub fn bucket(rate: u32, period: Period, burst: u32) -> Result<Self, OptionError> {
        let shape = Shape::Bucket { burst: at_least_one("burst", burst)? };
        let rate = Rate::new(rate, period, shape)?;
        if u64::from(rate.rate.get()) > period.as_nanos() / 64 {
            return Err(OptionError::new(
                "rate",
                format_args!("{} per {period}", rate.rate),
                format!("1 to {} per {period}", period.as_nanos() / 64),
            ));
        }
        if rate.step.checked_mul(u64::from(burst)).is_none_or(|refill| refill > MAX_REFILL_NANOS) {
            return Err(OptionError::new(
                "burst",
                format_args!("{burst} at {} per {period}", rate.rate),
                "a burst that refills within ten years",
            ));
        }
        Ok(rate)
    }

    /// Allows `rate` starts per `period`, spread evenly: a bucket whose burst is what refills in 10 ms, at least one.
    /// In *any* stretch of a period's length at most `rate` start, for rates of up to 100 a second. Above that there
    /// may be as many more as fit into 10 ms, because no waiter is woken every few microseconds.
    pub fn smooth(rate: u32, period: Period) -> Result<Self, OptionError> {
        let burst = u64::from(rate).saturating_mul(SMOOTH_NANOS) / period.as_nanos();
        Rate::bucket(rate, period, u32::try_from(burst).unwrap_or(u32::MAX).max(1))
    }

    /// Returns how many may start per period.
    pub const fn rate(&self) -> u32 {
        self.rate.get()
    }

    /// Returns the period.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Returns how it counts.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Uses up one start. Returns the state after it, or the earliest moment at which there will be one.
    #[inline]
    pub fn spend(&self, state: RateState, now: Tick) -> Result<RateState, Tick> {
        let now = now.as_nanos();
        match self.shape {
            Shape::Window => {
                let (end, count) = self.open_window(state);
                if now >= end {
                    Ok(self.window_word(now.saturating_add(self.period.as_nanos()), 1))
                } else if count < self.rate() {
                    Ok(RateState(state.0 + 1))
                } else if self.is_beyond(end, now) {
                    Ok(self.window_word(now.saturating_add(self.period.as_nanos()), 1))
                } else {
                    Err(Tick::from_nanos(end))
                }
            }
            Shape::Bucket { burst } => {
                let full_at = state.0.max(now);
                let tolerance = self.step * u64::from(burst.get() - 1);
                if full_at - now <= tolerance {
                    Ok(RateState(full_at.saturating_add(self.step)))
                } else if self.is_beyond(full_at, now) {
                    Ok(RateState(now.saturating_add(self.step)))
                } else {
                    Err(Tick::from_nanos(full_at - tolerance))
                }
            }
        }
    }

    /// Takes back at `now` one start that was spent and never began. `spent` is the state that [`Rate::spend`] gave
    /// then; if its window is over, or its token refilled, there is nothing to take back. A bucket takes back only the
    /// latest start: others since may have had what refilled meanwhile, and nothing may be given twice.
    #[must_use]
    pub fn refund(&self, state: RateState, spent: RateState, now: Tick) -> RateState {
        if self.rests_at(spent) <= now {
            return state;
        }
        match self.shape {
            Shape::Window => match self.open_window(state) {
                (end, _) if end != self.open_window(spent).0 => state,
                // No start is left, so the window never began: the next one opens its own.
                (_, 0 | 1) => RateState::default(),
                _ => RateState(state.0 - 1),
            },
            Shape::Bucket { .. } if state == spent => RateState(state.0.saturating_sub(self.step)),
            Shape::Bucket { .. } => state,
        }
    }

    /// Returns what is left at `now`.
    pub fn look(&self, state: RateState, now: Tick) -> RateLook {
        let state = self.known(state, now);
        let rests_at = self.rests_at(state).max(now);
        match self.shape {
            Shape::Window => {
                let (end, count) = self.open_window(state);
                let used = if now.as_nanos() < end { count } else { 0 };
                RateLook {
                    limit: self.rate(),
                    remaining: self.rate().saturating_sub(used),
                    resets_at: rests_at,
                }
            }
            Shape::Bucket { burst } => {
                let used = state.0.saturating_sub(now.as_nanos()).div_ceil(self.step);
                let remaining = u64::from(burst.get()).saturating_sub(used) as u32;
                RateLook { limit: burst.get(), remaining, resets_at: rests_at }
            }
        }
    }

    /// Returns how long it takes until one may start, where nothing is left and all of it is available again in `full_in`.
    pub fn next_in(&self, full_in: Duration) -> Duration {
        match self.shape {
            Shape::Window => full_in,
            Shape::Bucket { burst } => {
                let others = self.step * u64::from(burst.get() - 1);
                full_in.saturating_sub(Duration::from_nanos(others))
            }
        }
    }

    /// From when on this state says nothing more than a new one would.
    #[inline]
    pub fn rests_at(&self, state: RateState) -> Tick {
        match self.shape {
            Shape::Window => Tick::from_nanos(self.open_window(state).0),
            Shape::Bucket { .. } => Tick::from_nanos(state.0),
        }
    }

    /// The state under this rate of a lane that was counted under `old` until `now`: what was spent stays spent, up to
    /// all that this rate allows at once.
    #[must_use]
    pub fn carry(&self, old: &Rate, state: RateState, now: Tick) -> RateState {
        if old == self {
            return state;
        }
        let state = old.known(state, now);
        if old.rests_at(state) <= now {
            return RateState::default();
        }
        let seen = old.look(state, now);
        let used = seen.limit - seen.remaining;
        match (old.shape, self.shape) {
            (Shape::Window, Shape::Window) => {
                // The window began when it began; only its length and its allowance change.
                let began = old.open_window(state).0.saturating_sub(old.period.as_nanos());
                self.window_word(began.saturating_add(self.period.as_nanos()), used.min(self.rate()))
            }
            (Shape::Bucket { .. }, Shape::Window) => {
                self.window_word(now.as_nanos().saturating_add(self.period.as_nanos()), used.min(self.rate()))
            }
            (Shape::Window, Shape::Bucket { burst }) => {
                let used = u64::from(used.min(burst.get()));
                RateState(now.as_nanos().saturating_add(used * self.step))
            }
            (Shape::Bucket { .. }, Shape::Bucket { burst }) => {
                // In tokens and their fractions: rounded to whole ones, a faster rate would begin with a longer wait.
                let owed = u128::from(state.0 - now.as_nanos()) * u128::from(self.step);
                let empty = self.step * u64::from(burst.get());
                let owed = u64::try_from(owed.div_ceil(u128::from(old.step))).unwrap_or(u64::MAX).min(empty);
                RateState(now.as_nanos().saturating_add(owed))
            }
        }
    }

    fn new(rate: u32, period: Period, shape: Shape) -> Result<Self, OptionError> {
        let rate = at_least_one("rate", rate)?;
        let mask = (u64::from(rate.get()) + 1).next_power_of_two() - 1;
        let step = period.as_nanos().div_ceil(u64::from(rate.get()));
        Ok(Rate { rate, period, shape, mask, step })
    }

    /// Whether a state that rests at `rests_at` was written by a clock that has been set back since, by more than a span.
    fn is_beyond(&self, rests_at: u64, now: u64) -> bool {
        let span = match self.shape {
            Shape::Window => self.period.as_nanos() + self.mask,
            Shape::Bucket { burst } => self.step * u64::from(burst.get()),
        };
        rests_at.saturating_sub(now) > 2 * span
    }

    /// The state, if it says anything at `now`.
    fn known(&self, state: RateState, now: Tick) -> RateState {
        let is_beyond = self.is_beyond(self.rests_at(state).as_nanos(), now.as_nanos());
        if is_beyond { RateState::default() } else { state }
    }

    /// The end and the count of a window's word.
    #[inline]
    fn open_window(&self, state: RateState) -> (u64, u32) {
        (state.0 & !self.mask, (state.0 & self.mask) as u32)
    }

    fn window_word(&self, end: u64, count: u32) -> RateState {
        RateState((end.saturating_add(self.mask) & !self.mask) + u64::from(count))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.rate, self.period)?;
        match self.shape {
            Shape::Window => Ok(()),
            Shape::Bucket { burst } => write!(f, " (bucket, burst {burst})"),
        }
    }
}

fn at_least_one(option: &'static str, value: u32) -> Result<NonZeroU32, OptionError> {
    NonZeroU32::new(value).ok_or_else(|| OptionError::new(option, value, "an integer from 1 to 4294967295"))
}
