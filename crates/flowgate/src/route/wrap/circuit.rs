//! The state of a circuit breaker.
//!
//! Owns the rule: closed until too many failures fall into one window, open until the cooldown is over, half open for a few
//! trials, one of which decides. It reads no clock.

use std::{collections::VecDeque, time::Duration};

use flowgate_core::Tick;

use crate::sync::{Mutex, lock};

/// When it opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) failure_threshold: u32,
    pub(crate) window: Duration,
    pub(crate) cooldown: Duration,
    pub(crate) half_open_max: u32,
}

/// A breaker's state, shared by all exchanges of its route.
#[derive(Debug)]
pub(crate) struct Circuit {
    terms: Terms,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The moments of the latest failures, at most as many as open it.
    Closed(VecDeque<Tick>),
    Open {
        until: Tick,
    },
    HalfOpen {
        trials: u32,
    },
}

/// What one who is let through is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Let {
    Through,
    /// A trial; `is_first` where it is the one that half-opened it.
    Trial {
        is_first: bool,
    },
    /// Not at all; for so long at least.
    Nobody {
        wait: Duration,
    },
}

/// What a settled one has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Stays,
    Opened,
    Closed,
}

impl Circuit {
    pub(crate) fn new(terms: Terms) -> Self {
        Circuit { terms, state: Mutex::new(State::Closed(VecDeque::new())) }
    }

    pub(super) fn enter(&self, now: Tick) -> Let {
        let mut state = lock(&self.state);
        match &mut *state {
            State::Closed(_) => Let::Through,
            State::Open { until } if now < *until => Let::Nobody { wait: until.since(now) },
            State::Open { .. } => {
                *state = State::HalfOpen { trials: 1 };
                Let::Trial { is_first: true }
            }
            State::HalfOpen { trials } if *trials < self.terms.half_open_max => {
                *trials += 1;
                Let::Trial { is_first: false }
            }
            State::HalfOpen { .. } => Let::Nobody { wait: Duration::ZERO },
        }
    }

    /// One who was let through has settled. What began before the breaker opened decides nothing any more.
    pub(super) fn settle(&self, is_trial: bool, has_failed: bool, now: Tick) -> Turn {
        let mut state = lock(&self.state);
        match (&mut *state, is_trial, has_failed) {
            (State::Closed(failures), _, true) => {
                failures.push_back(now);
                while failures.front().is_some_and(|&at| now.since(at) > self.terms.window) {
                    failures.pop_front();
                }
                if failures.len() < self.terms.failure_threshold as usize {
                    return Turn::Stays;
                }
                *state = self.open(now);
                Turn::Opened
            }
            (State::HalfOpen { .. }, true, true) => {
                *state = self.open(now);
                Turn::Opened
            }
            (State::HalfOpen { .. }, true, false) => {
                *state = State::Closed(VecDeque::new());
                Turn::Closed
            }
            _ => Turn::Stays,
        }
    }

    /// A trial ended without saying anything: cancelled, or shed by a limit of ours. Another may take its place.
    pub(super) fn forget_trial(&self) {
        if let State::HalfOpen { trials } = &mut *lock(&self.state) {
            *trials = trials.saturating_sub(1);
        }
    }

    fn open(&self, now: Tick) -> State {
        State::Open { until: now.after(self.terms.cooldown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn circuit() -> Circuit {
        Circuit::new(Terms {
            failure_threshold: 2,
            window: 10 * SECOND,
            cooldown: 5 * SECOND,
            half_open_max: 1,
        })
    }

    fn at(seconds: u32) -> Tick {
        Tick::ZERO.after(SECOND * seconds)
    }

    #[test]
    fn failures_open_it_only_within_one_window() {
        let circuit = circuit();
        assert_eq!(circuit.settle(false, true, at(0)), Turn::Stays);
        assert_eq!(circuit.settle(false, true, at(11)), Turn::Stays, "the first one is out of the window");
        assert_eq!(circuit.settle(false, true, at(12)), Turn::Opened);
        assert_eq!(circuit.enter(at(14)), Let::Nobody { wait: 3 * SECOND });
        assert_eq!(circuit.settle(false, false, at(14)), Turn::Stays, "one from before decides nothing");
    }

    #[test]
    fn one_trial_decides_and_a_forgotten_one_makes_room() {
        let circuit = circuit();
        circuit.settle(false, true, at(0));
        circuit.settle(false, true, at(0));
        assert_eq!(circuit.enter(at(5)), Let::Trial { is_first: true });
        assert_eq!(circuit.enter(at(5)), Let::Nobody { wait: Duration::ZERO });
        circuit.forget_trial();
        assert_eq!(circuit.enter(at(5)), Let::Trial { is_first: false });
        assert_eq!(circuit.settle(true, true, at(6)), Turn::Opened);
        assert_eq!(circuit.enter(at(10)), Let::Nobody { wait: SECOND });
        assert_eq!(circuit.enter(at(11)), Let::Trial { is_first: true });
        assert_eq!(circuit.settle(true, false, at(11)), Turn::Closed);
        assert_eq!(circuit.enter(at(11)), Let::Through);
    }
}
