//! Limits: what a lane may do, checked once.
//!
//! Owns the options of a limit and their ranges. What is built is valid: every other part takes a [`Limits`] and asks
//! no more. It holds no state.

use std::{num::NonZeroU32, time::Duration};

use crate::{Adaptive, Discipline, OptionError, Period, Rate};

/// The largest `max`.
pub const MAX_MAX: u32 = 1_000_000_000;
/// The largest `queue`.
pub const MAX_QUEUE: u32 = 1_000_000_000;
const MAX_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What happens to an entry that cannot start at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It waits in line.
    Queue {
        /// How many may wait; `None` means any number.
        max: Option<NonZeroU32>,
        /// How long each may wait; `None` means as long as it takes.
        timeout: Option<Duration>,
    },
    /// It is refused.
    Reject,
}

/// How many may be in flight, how often work may start, and what happens to the rest. A value of this type is always
/// valid.
///
/// ```
/// # use flowgate_core::Limits;
/// let limits = Limits::builder().max(5).rate(20, "1m").queue(50).build()?;
/// assert_eq!(limits.to_string(), "max 5, rate 20 per 1m, queue 50");
///
/// let wrong = Limits::builder().max(0).build().unwrap_err();
/// assert_eq!(wrong.to_string(), "RC5003: option `max` is 0; accepted: an integer from 1 to 1000000000");
/// # Ok::<(), flowgate_core::OptionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    max: Option<NonZeroU32>,
    adaptive: Option<Adaptive>,
    rate: Option<Rate>,
    overflow: Overflow,
    discipline: Discipline,
}

impl Limits {
    /// Starts building limits. Set at least `max` or `rate`.
    pub fn builder() -> LimitsBuilder {
        LimitsBuilder::default()
    }

    /// Returns how many may be in flight, or `None` if there is only a rate.
    #[inline]
    pub const fn max(&self) -> Option<u32> {
        match self.max {
            Some(max) => Some(max.get()),
            None => None,
        }
    }

    /// Returns the rule that adjusts `max`, if there is one.
    pub const fn adaptive(&self) -> Option<Adaptive> {
        self.adaptive
    }

    /// Returns how often work may start, if that is limited.
    #[inline]
    pub const fn rate(&self) -> Option<&Rate> {
        self.rate.as_ref()
    }

    /// Returns what happens to entries that cannot start at once.
    #[inline]
    pub const fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Returns the order in which the line is served, and how long one may wait in it while work piles up.
    #[inline]
    pub const fn discipline(&self) -> Discipline {
        self.discipline
    }

    /// Returns how long one may wait in line, if that is limited.
    pub const fn timeout(&self) -> Option<Duration> {
        match self.overflow {
            Overflow::Queue { timeout, .. } => timeout,
            Overflow::Reject => None,
        }
    }

    /// Returns the largest weight that can ever start: `max`, or the floor below which an adaptive `max` never goes.
    #[inline]
    pub fn heaviest(&self) -> u32 {
        match (self.adaptive, self.max()) {
            (Some(adaptive), _) => adaptive.floor(),
            (None, Some(max)) => max,
            (None, None) => MAX_MAX,
        }
    }

    /// Returns the same limits with another `max`, which is also the ceiling of an adaptive rule.
    pub fn with_max(self, max: u32) -> Result<Self, OptionError> {
        let max = Some(checked_max(max)?);
        self.adaptive.map_or(Ok(()), |adaptive| adaptive.check(max))?;
        Ok(Limits { max, ..self })
    }

    /// Returns the same limits with another rule for entries that cannot start at once. Its ranges are those of
    /// [`LimitsBuilder::queue`] and [`LimitsBuilder::timeout`].
    pub fn with_overflow(self, rule: Overflow) -> Result<Self, OptionError> {
        let (reject, queue, timeout) = match rule {
            Overflow::Queue { max, timeout } => (false, max.map(NonZeroU32::get), timeout),
            Overflow::Reject => (true, None, None),
        };
        let codel = match self.discipline {
            Discipline::Codel { target, interval } => Some((target, interval)),
            Discipline::Fifo => None,
        };
        let discipline = discipline(codel, self.max, reject)?;
        Ok(Limits { overflow: overflow(reject, queue, timeout)?, discipline, ..self })
    }

    /// Returns the same limits with `max` where an adaptive rule has put it: never below its floor, so that the
    /// heaviest entry can still start.
    #[must_use]
    pub fn moved_to(self, max: NonZeroU32) -> Self {
        let floor = self.adaptive.map_or(1, |adaptive| adaptive.floor());
        Limits { max: NonZeroU32::new(max.get().clamp(floor, MAX_MAX)), ..self }
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.max, self.adaptive) {
            (Some(max), Some(adaptive)) => write!(f, "max {max} ({adaptive}), ")?,
            (Some(max), None) => write!(f, "max {max}, ")?,
            (None, _) => {}
        }
        if let Some(rate) = &self.rate {
            write!(f, "rate {rate}, ")?;
        }
        match self.overflow {
            Overflow::Reject => write!(f, "reject"),
            Overflow::Queue { max, timeout } => {
                match max {
                    Some(max) => write!(f, "queue {max}")?,
                    None => write!(f, "queue unbounded")?,
                }
                timeout.map_or(Ok(()), |timeout| write!(f, ", timeout {timeout:?}"))?;
                match self.discipline {
                    Discipline::Fifo => Ok(()),
                    codel => write!(f, ", {codel}"),
                }
            }
        }
    }
}

/// Collects the options of a [`Limits`]. [`LimitsBuilder::build`] reports the first mistake.
#[derive(Clone, Debug, Default)]
pub struct LimitsBuilder {
    max: Option<u32>,
    adaptive: Option<Adaptive>,
    rate: Option<(u32, Result<Period, OptionError>)>,
    burst: Option<u32>,
    smooth: bool,
    queue: Option<u32>,
    timeout: Option<Duration>,
    codel: Option<(Duration, Duration)>,
    reject: bool,
}

impl LimitsBuilder {
    /// Allows at most `max` in flight at once: 1 to 1,000,000,000. Default: no such limit; then a rate has to be set.
    #[must_use]
    pub fn max(mut self, max: u32) -> Self {
        self.max = Some(max);
        self
    }

    /// Lets a rule adjust `max` between its floor and the `max` set here, by what it observes. Off by default.
    #[must_use]
    pub fn adaptive(mut self, rule: Adaptive) -> Self {
        self.adaptive = Some(rule);
        self
    }

    /// Allows at most `rate` starts per `period` (text like `"1m"`, a number of milliseconds, or a `Duration`),
    /// counted from the period's first start. With [`LimitsBuilder::burst`] they refill steadily instead.
    #[must_use]
    pub fn rate<P>(mut self, rate: u32, period: P) -> Self
    where
        P: TryInto<Period>,
        OptionError: From<P::Error>,
    {
        self.rate = Some((rate, period.try_into().map_err(OptionError::from)));
        self
    }

    /// Makes the rate a token bucket: it refills steadily, and at most `burst` may start at once.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Spreads the rate evenly instead of counting it in windows, so that no burst of twice the rate crosses the edge
    /// of a window: see [`Rate::smooth`]. `burst` overrides it.
    #[must_use]
    pub fn smooth(mut self) -> Self {
        self.smooth = true;
        self
    }

    /// Limits how many may wait: 1 to 1,000,000,000. Default: any number.
    #[must_use]
    pub fn queue(mut self, max_queue: u32) -> Self {
        self.queue = Some(max_queue);
        self
    }

    /// Limits how long each may wait: above zero, up to 366 days. Default: as long as it takes.
    #[must_use]
    pub fn timeout(mut self, queue_timeout: Duration) -> Self {
        self.timeout = Some(queue_timeout);
        self
    }

    /// Serves the line by CoDel, newest first under overload. Default: always first in, first out.
    ///
    /// Once the line has not been empty for a whole `interval`, the lane is *backlogged*: a freed slot goes to the
    /// newest, and whoever has waited for `target` is refused (`queue-timeout`), until the line has been empty again.
    /// Before that the line is first in, first out, and nobody waits longer than `interval`. Time during a pause, or
    /// while the rate holds the line back, does not count. `target` has to be above zero, and `interval` from
    /// `target` to 366 days.
    #[must_use]
    pub fn codel(mut self, target: Duration, interval: Duration) -> Self {
        self.codel = Some((target, interval));
        self
    }

    /// Refuses whoever cannot start at once, instead of letting them wait.
    #[must_use]
    pub fn reject(mut self) -> Self {
        self.reject = true;
        self
    }

    /// Builds the limits, or returns the first option that is wrong.
    pub fn build(self) -> Result<Limits, OptionError> {
        let max = self.max.map(checked_max).transpose()?;
        let rate = match (self.rate, self.burst) {
            (Some((rate, period)), None) if self.smooth => Some(Rate::smooth(rate, period?)?),
            (Some((rate, period)), None) => Some(Rate::window(rate, period?)?),
            (Some((rate, period)), Some(burst)) => Some(Rate::bucket(rate, period?, burst)?),
            (None, Some(burst)) => {
                return Err(OptionError::new(
                    "burst",
                    burst,
                    "only together with `rate` (set `rate` or drop `burst`)",
                ));
            }
            (None, None) if self.smooth => {
                return Err(OptionError::new(
                    "smooth",
                    "true",
                    "only together with `rate` (set `rate` or drop `smooth`)",
                ));
            }
            (None, None) => None,
        };
        if max.is_none() && rate.is_none() {
            return Err(OptionError::new(
                "max",
                "not set",
                "`max`, `rate` or both: without either there is no limit",
            ));
        }
        if let Some(adaptive) = self.adaptive {
            adaptive.check(max)?;
        }
        Ok(Limits {
            max,
            adaptive: self.adaptive,
            rate,
            overflow: overflow(self.reject, self.queue, self.timeout)?,
            discipline: discipline(self.codel, max, self.reject)?,
        })
    }
}

fn checked_max(max: u32) -> Result<NonZeroU32, OptionError> {
    NonZeroU32::new(max)
        .filter(|max| max.get() <= MAX_MAX)
        .ok_or_else(|| OptionError::new("max", max, format!("an integer from 1 to {MAX_MAX}")))
}

fn discipline(
    codel: Option<(Duration, Duration)>,
    max: Option<NonZeroU32>,
    reject: bool,
) -> Result<Discipline, OptionError> {
    let Some((target, interval)) = codel else { return Ok(Discipline::Fifo) };
    let codel = Discipline::codel(target, interval)?;
    let misplaced =
        |why| Err(OptionError::new("codel", format_args!("target {target:?}, interval {interval:?}"), why));
    match max {
        _ if reject => misplaced("only without `reject`, which allows no line (drop `codel` or `reject`)"),
        None => misplaced(
            "only together with `max`, because a line held up by the rate alone says nothing about load",
        ),
        Some(_) => Ok(codel),
    }
}

fn overflow(reject: bool, queue: Option<u32>, timeout: Option<Duration>) -> Result<Overflow, OptionError> {
    if reject {
        return match (queue, timeout) {
            (Some(queue), _) => {
                Err(OptionError::new("queue", queue, "only without `reject` (drop `queue` or `reject`)"))
            }
            (_, Some(timeout)) => Err(OptionError::new(
                "timeout",
                format_args!("{timeout:?}"),
                "only without `reject` (drop `timeout` or `reject`)",
            )),
            (None, None) => Ok(Overflow::Reject),
        };
    }
    let max = match queue {
        None => None,
        Some(queue) => {
            Some(NonZeroU32::new(queue).filter(|max| max.get() <= MAX_QUEUE).ok_or_else(|| {
                OptionError::new(
                    "queue",
                    queue,
                    format!("an integer from 1 to {MAX_QUEUE}, or `reject` for no queue at all"),
                )
            })?)
        }
    };
    match timeout {
        Some(timeout) if timeout.is_zero() || timeout > MAX_TIMEOUT => Err(OptionError::new(
            "timeout",
            format_args!("{timeout:?}"),
            "a duration above zero and up to 366 days, or `reject` for no wait at all",
        )),
        _ => Ok(Overflow::Queue { max, timeout }),
    }
}
