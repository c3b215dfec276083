//! Adaptive maxima: rules that move `max` between a floor and a ceiling by what is observed.
//!
//! Owns two rules, AIMD (by outcome, and by latency if a target is set) and gradient (by latency against the best
//! seen). The ceiling is the static `max` and also where both begin: a good static max beats a cold search. They see
//! samples and say a number; they never measure anything themselves.

use std::{fmt, num::NonZeroU32, time::Duration};

use crate::{OptionError, Tick};

/// How a piece of work ended, as far as a limit is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It was done; its latency counts.
    #[default]
    Done,
    /// What it called said it is overloaded, or did not answer in time.
    Overloaded,
    /// It says nothing about load (a bad request, a cancelled call).
    Ignored,
}

/// One piece of work that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When its pass was given.
    pub started: Tick,
    /// When its pass came back.
    pub ended: Tick,
    /// How many slots were taken just before it came back, with its own.
    pub in_use: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// A rule that moves `max`, and the floor it never goes below.
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
    /// The best latency seen in nanoseconds; zero before the first round.
    baseline: f64,
    rounds: u32,
    probe: Probe,
}

/// What was seen since the round began, of work that also started in it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Round {
    began: Tick,
    seen: u32,
    total: f64,
    best: f64,
    most_in_use: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Probe {
    /// At which round the baseline is measured anew.
    At(u32),
    /// Measuring with half the `max`, which comes back to this afterwards.
    Running { back_to: f64 },
}

/// The factor of a cut, and how far one round of the gradient rule may fall.
const CUT: f64 = 0.9;
const STEEPEST: f64 = 0.5;
/// How much of a round's finding is taken over.
const SMOOTHING: f64 = 0.2;
const LEAST_SAMPLES: u32 = 10;
/// Rounds between two measurements of the baseline: this many, and up to as many again so that a fleet does not probe in step.
const PROBE_EVERY: u32 = 100;

impl Adaptive {
    /// One more after each round of successes, a tenth less after an overload: by outcome alone, unless
    /// [`Adaptive::slower_than`] gives a latency that counts as overload too.
    pub const fn aimd() -> Self {
        Adaptive { rule: Rule::Aimd { target: None }, floor: 1 }
    }

    /// As many as keep latency near the best seen: within 1.5 times of it, unless [`Adaptive::tolerance_percent`] says
    /// otherwise.
    pub const fn gradient() -> Self {
        Adaptive { rule: Rule::Gradient { tolerance_percent: 150 }, floor: 1 }
    }

    /// Never below `floor`. Default 1.
    #[must_use]
    pub const fn floor_at(mut self, floor: u32) -> Self {
        self.floor = floor;
        self
    }

    /// AIMD: work that took longer counts as overload. No effect on the gradient rule.
    #[must_use]
    pub const fn slower_than(mut self, target: Duration) -> Self {
        if let Rule::Aimd { .. } = self.rule {
            self.rule = Rule::Aimd { target: Some(target) };
        }
        self
    }

    /// Gradient: the latency, in percent of the best seen, up to which `max` may rise. Default 150. No effect on AIMD.
    #[must_use]
    pub const fn tolerance_percent(mut self, percent: u32) -> Self {
        if let Rule::Gradient { .. } = self.rule {
            self.rule = Rule::Gradient { tolerance_percent: percent };
        }
        self
    }

    /// The floor.
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
                "a floor from 1 to `max`, and `max` set: it is the ceiling",
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

    /// Begins at the ceiling.
    pub fn begin(&self, ceiling: u32) -> AdaptiveState {
        AdaptiveState {
            max: f64::from(ceiling),
            ceiling: f64::from(ceiling),
            cut_at: Tick::ZERO,
            round: Round::begin(Tick::ZERO),
            baseline: 0.0,
            rounds: 0,
            probe: Probe::At(PROBE_EVERY),
        }
    }

    /// Takes in one sample and says where `max` is now.
    pub fn observe(&self, state: &mut AdaptiveState, sample: Sample) -> NonZeroU32 {
        let latency = sample.ended.since(sample.started);
        match (self.rule, sample.outcome) {
            (_, Outcome::Ignored) => {}
            (_, Outcome::Overloaded) => self.cut(state, sample),
            (Rule::Aimd { target: Some(target) }, Outcome::Done) if latency > target => {
                self.cut(state, sample);
            }
            (Rule::Aimd { .. }, Outcome::Done) => {
                if is_pressed(sample.in_use, state.max) {
                    state.max += 1.0 / state.max;
                }
            }
            (Rule::Gradient { tolerance_percent }, Outcome::Done) => {
                state.round.take(sample, latency);
                if state.round.seen >= LEAST_SAMPLES.max(state.max as u32) {
                    state.end_round(
                        f64::from(tolerance_percent) / 100.0,
                        f64::from(self.floor),
                        sample.ended,
                    );
                }
            }
        }
        state.max = state.max.clamp(f64::from(self.floor), state.ceiling);
        NonZeroU32::new(state.max as u32).unwrap_or(NonZeroU32::MIN)
    }

    fn cut(&self, state: &mut AdaptiveState, sample: Sample) {
        if sample.started >= state.cut_at {
            state.max = (state.max * CUT).min(state.max - 1.0).max(f64::from(self.floor));
            state.cut_at = sample.ended;
        }
    }
}

impl AdaptiveState {
    /// Where `max` is.
    pub fn max(&self) -> u32 {
        self.max as u32
    }

    fn end_round(&mut self, tolerance: f64, floor: f64, now: Tick) {
        let round = std::mem::replace(&mut self.round, Round::begin(now));
        let average = round.total / f64::from(round.seen);
        self.rounds += 1;
        match self.probe {
            Probe::Running { back_to } => {
                // Measured with half the load: this is the service's own time, not our line in front of it.
                self.baseline = round.best;
                self.max = back_to;
                self.probe = Probe::At(self.rounds + PROBE_EVERY + jitter(self.rounds));
            }
            Probe::At(rounds) => {
                self.baseline = if self.baseline > 0.0 { self.baseline.min(round.best) } else { round.best };
                let gradient = (tolerance * self.baseline / average).clamp(STEEPEST, 1.0);
                let found = self.max * gradient + self.max.sqrt();
                // Rising is for those who press against the limit; a quiet hour must not raise it.
                if found < self.max || is_pressed(round.most_in_use, self.max) {
                    self.max += (found - self.max) * SMOOTHING;
                }
                if self.rounds >= rounds {
                    self.probe = Probe::Running { back_to: self.max };
                    self.max = (self.max / 2.0).max(floor);
                }
            }
        }
    }
}

impl Round {
    fn begin(began: Tick) -> Self {
        Round { began, seen: 0, total: 0.0, best: f64::MAX, most_in_use: 0 }
    }

    fn take(&mut self, sample: Sample, latency: Duration) {
        if sample.started < self.began {
            return;
        }
        let latency = latency.as_nanos().max(1) as f64;
        self.seen += 1;
        self.total += latency;
        self.best = self.best.min(latency);
        self.most_in_use = self.most_in_use.max(sample.in_use);
    }
}

/// Whether the limit is what holds the load back, so that raising it could mean anything.
fn is_pressed(in_use: u32, max: f64) -> bool {
    f64::from(in_use) * 2.0 >= max
}

/// Spreads the probes of a fleet: any fixed scrambling of the round's number does.
fn jitter(rounds: u32) -> u32 {
    rounds.wrapping_mul(2_654_435_761) % PROBE_EVERY
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
