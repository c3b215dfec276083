//! Adaptive maxima: rules that move `max` between a floor and a ceiling by what is observed.
//!
//! Owns two rules, AIMD (by outcome, and by latency if a target is set) and gradient (by latency against the latency
//! without load). The ceiling is the static `max` and also where both begin: a good static max beats a cold search.
//! They see samples and say a number; they never measure anything themselves.
//!
//! **Gradient.** It works in rounds of about as many samples as are in flight, and compares averages: a round's with
//! the *baseline*, the average without load. Up to `tolerance` times the baseline `max` rises, by its square root;
//! beyond, it falls with the ratio. All hangs on the baseline, which load must not blur, so it is not guessed but
//! *probed*: halve the load until latency no longer falls with it (what still falls was a line in front of the
//! service, not the service), take that latency, go back. It is probed at the start, every hundred rounds or two, and
//! whenever `max` has come down to half: for then either capacity is lost or the service itself is slower, and only
//! a probe tells which.

use std::{fmt, num::NonZeroU32, time::Duration};

use crate::{OptionError, Tick};

/// How a piece of work ended, as far as an adaptive limit is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It was done. How long it took counts.
    #[default]
    Done,
    /// What it called was overloaded, or did not answer in time.
    Overloaded,
    /// It says nothing about load (a bad request, a cancelled call).
    Ignored,
}

/// A piece of work that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When its pass was given.
    pub started: Tick,
    /// When its pass came back.
    pub ended: Tick,
    /// How many slots were taken just before it came back, including its own.
    pub in_use: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// A rule that adjusts `max`, and the floor below which it never goes.
///
/// ```
/// # use flowgate_core::{Adaptive, Limits};
/// # use std::time::Duration;
/// let rule = Adaptive::aimd().floor_at(4).slower_than(Duration::from_millis(250));
/// let limits = Limits::builder().max(64).adaptive(rule).build()?;
/// # Ok::<(), flowgate_core::OptionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    rule: Rule,
    floor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Aimd { target: Option<Duration> },
    Gradient { tolerance_percent: u32 },
}

/// What a rule remembers.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveState {
    max: f64,
    ceiling: f64,
    /// No further cut for work that started before this: one overload is one signal, however many feel it.
    cut_at: Tick,
    round: Round,
    /// The average latency without load, in nanoseconds.
    baseline: f64,
    /// The highest `max` since the baseline was probed.
    peak: f64,
    /// Rounds until the baseline is probed anew.
    rounds_left: u32,
    probe: Option<Probe>,
}

/// What was seen since the round began, of work that also started after it did.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Round {
    began: Tick,
    seen: u32,
    total: f64,
    most_in_use: u32,
}

/// A baseline being measured, with a lower `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    /// Where `max` was, and will be again.
    back_to: f64,
    /// The average latency under twice the load.
    above: f64,
}

/// The factor of a cut, and how far one round of the gradient rule may fall.
const CUT: f64 = 0.9;
const STEEPEST: f64 = 0.5;
/// How much of a round's finding is taken over.
const SMOOTHING: f64 = 0.2;
/// Fewer make no average: the latencies of many services spread as far as they are long.
const LEAST_SAMPLES: u32 = 30;
/// Rounds before the first probe: the first one starts with no load and ends with all of it.
const WARM_UP: u32 = 2;
/// Under half the load, a latency below this part of the former one has fallen with the load.
const FALLEN: f64 = 0.9;
/// Rounds between two probes: this many, and up to as many again so that a fleet does not probe in step.
const PROBE_EVERY: u32 = 100;

impl Adaptive {
    /// Adds one after each round of successes, and takes off a tenth after an overload. It goes by outcomes alone,
    /// unless [`Adaptive::slower_than`] sets a latency that counts as overload too.
    pub const fn aimd() -> Self {
        Adaptive { rule: Rule::Aimd { target: None }, floor: 1 }
    }

    /// Allows as many as keep the latency near what it is without load: within 1.5 times of it, unless
    /// [`Adaptive::tolerance_percent`] says otherwise. From time to time it lets in half or fewer for a moment, to
    /// learn what the latency without load is.
    pub const fn gradient() -> Self {
        Adaptive { rule: Rule::Gradient { tolerance_percent: 150 }, floor: 1 }
    }

    /// Sets the floor, below which `max` never goes. Default: 1.
    #[must_use]
    pub const fn floor_at(mut self, floor: u32) -> Self {
        self.floor = floor;
        self
    }

    /// For AIMD: counts work that took longer than `target` as overload. No effect on the gradient rule.
    #[must_use]
    pub const fn slower_than(mut self, target: Duration) -> Self {
        if let Rule::Aimd { .. } = self.rule {
            self.rule = Rule::Aimd { target: Some(target) };
        }
        self
    }

    /// For the gradient rule: sets the latency, in percent of that without load, up to which `max` may rise. Default:
    /// 150. No effect on AIMD.
    #[must_use]
    pub const fn tolerance_percent(mut self, percent: u32) -> Self {
        if let Rule::Gradient { .. } = self.rule {
            self.rule = Rule::Gradient { tolerance_percent: percent };
        }
        self
    }

    /// Returns the floor.
    pub const fn floor(&self) -> u32 {
        self.floor
    }

    pub(crate) fn check(&self, max: Option<NonZeroU32>) -> Result<(), OptionError> {
        let ceiling = max.map_or(0, NonZeroU32::get);
        if self.floor == 0 || self.floor > ceiling {
            let max = max.map_or_else(|| "not set".to_owned(), |max| max.to_string());
            let given = format!("floor {} with max {max}", self.floor);
            return Err(OptionError::new(
                "adaptive",
                given,
                "a floor from 1 to `max`, which must be set: it is the ceiling",
            ));
        }
        match self.rule {
            Rule::Aimd { target: Some(target) } if target.is_zero() => {
                Err(OptionError::new("slower_than", "0ns", "a duration above zero"))
            }
            Rule::Gradient { tolerance_percent } if !(100..=1000).contains(&tolerance_percent) => {
                Err(OptionError::new("tolerance_percent", tolerance_percent, "an integer from 100 to 1000"))
            }
            _ => Ok(()),
        }
    }

    /// Creates the state to begin with, at the ceiling, which is not below the floor.
    pub fn begin(&self, ceiling: u32) -> AdaptiveState {
        let ceiling = f64::from(ceiling.max(self.floor));
        AdaptiveState {
            max: ceiling,
            ceiling,
            cut_at: Tick::ZERO,
            round: Round::begin(Tick::ZERO),
            baseline: f64::MAX,
            peak: ceiling,
            rounds_left: WARM_UP,
            probe: None,
        }
    }

    /// Takes in one sample and returns the new `max`.
    pub fn observe(&self, state: &mut AdaptiveState, sample: Sample) -> NonZeroU32 {
        let floor = f64::from(self.floor);
        let latency = sample.ended.since(sample.started);
        match (self.rule, sample.outcome) {
            (_, Outcome::Ignored) => {}
            (_, Outcome::Overloaded) => state.cut(sample),
            (Rule::Aimd { target: Some(target) }, Outcome::Done) if latency > target => state.cut(sample),
            (Rule::Aimd { .. }, Outcome::Done) => {
                if is_pressed(f64::from(sample.in_use), state.max) {
                    state.max += 1.0 / state.max;
                }
            }
            (Rule::Gradient { tolerance_percent }, Outcome::Done) => {
                state.round.take(sample, latency);
                if state.round.seen >= LEAST_SAMPLES.max(state.max as u32) {
                    state.end_round(f64::from(tolerance_percent) / 100.0, floor, sample.ended);
                }
            }
        }
        state.max = state.max.clamp(floor, state.ceiling);
        NonZeroU32::new(state.max as u32).unwrap_or(NonZeroU32::MIN)
    }
}

impl AdaptiveState {
    /// Returns the current `max`.
    pub fn max(&self) -> u32 {
        self.max as u32
    }

    fn cut(&mut self, sample: Sample) {
        if sample.started >= self.cut_at {
            let lower = |max: f64| (max * CUT).min(max - 1.0);
            self.max = lower(self.max);
            self.probe = self.probe.map(|probe| Probe { back_to: lower(probe.back_to), ..probe });
            self.cut_at = sample.ended;
        }
    }

    fn end_round(&mut self, tolerance: f64, floor: f64, now: Tick) {
        let round = std::mem::replace(&mut self.round, Round::begin(now));
        let average = round.total / f64::from(round.seen);
        let in_use = f64::from(round.most_in_use).min(self.max);
        match self.probe {
            Some(probe) if average < probe.above * FALLEN => {
                self.probe_lower(probe.back_to, average, in_use, floor, now);
            }
            Some(probe) => self.end_probe(probe.back_to, average, now),
            None => {
                self.follow(tolerance, average, in_use);
                self.rounds_left = self.rounds_left.saturating_sub(1);
                if self.rounds_left == 0 || self.max * 2.0 <= self.peak {
                    self.probe_lower(self.max, average, in_use, floor, now);
                }
            }
        }
    }

    fn follow(&mut self, tolerance: f64, average: f64, in_use: f64) {
        let gradient = (tolerance * self.baseline / average).clamp(STEEPEST, 1.0);
        let found = self.max * gradient + self.max.sqrt();
        // Rising is for those who press against the limit; a quiet hour must not raise it.
        if found < self.max || is_pressed(in_use, self.max) {
            self.max = (self.max + (found - self.max) * SMOOTHING).min(self.ceiling);
        }
        self.peak = self.peak.max(self.max);
    }

    /// Half of what was in use is let in for the next round, unless the load is as low as it may be.
    fn probe_lower(&mut self, back_to: f64, average: f64, in_use: f64, floor: f64, now: Tick) {
        let half = (in_use / 2.0).floor().max(floor);
        if half >= in_use.floor() {
            return self.end_probe(back_to, average, now);
        }
        self.max = half;
        self.probe = Some(Probe { back_to, above: average });
    }

    fn end_probe(&mut self, back_to: f64, average: f64, now: Tick) {
        self.baseline = average;
        self.max = back_to;
        self.peak = back_to;
        self.rounds_left = PROBE_EVERY + jitter(now);
        self.probe = None;
    }
}

impl Round {
    fn begin(began: Tick) -> Self {
        Round { began, seen: 0, total: 0.0, most_in_use: 0 }
    }

    fn take(&mut self, sample: Sample, latency: Duration) {
        if sample.started <= self.began {
            return;
        }
        self.seen += 1;
        self.total += latency.as_nanos().max(1) as f64;
        self.most_in_use = self.most_in_use.max(sample.in_use);
    }
}

/// Whether the limit is what holds the load back, so that raising it could mean anything.
fn is_pressed(in_use: f64, max: f64) -> bool {
    in_use * 2.0 >= max
}

/// Spreads the probes of a fleet: any scrambling of a moment does, for no two gates end a round in the same nanosecond.
fn jitter(now: Tick) -> u32 {
    (now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % PROBE_EVERY
}

impl fmt::Display for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Rule::Aimd { target: None } => write!(f, "adaptive aimd from {}", self.floor),
            Rule::Aimd { target: Some(target) } => {
                write!(f, "adaptive aimd from {}, slower than {target:?}", self.floor)
            }
            Rule::Gradient { tolerance_percent } => {
                write!(f, "adaptive gradient from {}, tolerance {tolerance_percent} %", self.floor)
            }
        }
    }
}
