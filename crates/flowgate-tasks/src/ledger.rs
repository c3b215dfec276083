//! How often a key started, counted under each rate that somebody sent it with; and until when it rests.
//!
//! Tasks of one key may carry different limits, and each waits under its own. So every start of the key is counted under
//! every rate of the key that is still running. Owns those counts, the rests, and their text in a store; it never reads a clock.

use flowgate_core::{Limits, OptionError, Rate, RateState, Tick};

use crate::terms;

/// More rates than these are not counted apart: the one that rests first makes room.
const MOST_RATES: usize = 16;

/// More rests than these are not kept apart: the one that is over first makes room.
const MOST_RESTS: usize = 16;
const REST: &str = "rest=";

/// The counts of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ledger {
    rates: Vec<(Rate, RateState)>,
    /// By whom it rests, and until when.
    rests: Vec<(u32, Tick)>,
}

impl Ledger {
    /// What is spent under this rate. One not seen before takes over what is known under the latest.
    pub(crate) fn spent(&self, rate: &Rate, now: Tick) -> RateState {
        let same = self.rates.iter().find(|(known, _)| known == rate);
        same.map(|&(_, state)| state)
            .or_else(|| self.rates.last().map(|(known, state)| rate.carry(known, *state, now)))
            .unwrap_or_default()
    }

    /// One more start of the key, under `rate` if there is one, and under all others that are counted. A rate that allows no
    /// more is full already.
    pub(crate) fn start(&mut self, rate: Option<&Rate>, now: Tick) {
        if let Some(rate) = rate.filter(|rate| self.rates.iter().all(|(known, _)| known != *rate)) {
            let spent = self.spent(rate, now);
            self.make_room();
            self.rates.push((*rate, spent));
        }
        for (rate, state) in &mut self.rates {
            *state = rate.spend(*state, now).unwrap_or(*state);
        }
    }

    /// Nothing of the key starts until then, unless whoever says so ends it before.
    pub(crate) fn rest(&mut self, by: u32, until: Tick) {
        self.wake(by);
        if self.rests.len() >= MOST_RESTS {
            self.rests.sort_by_key(|&(_, until)| until);
            self.rests.remove(0);
        }
        self.rests.push((by, until));
    }

    /// Ends a rest.
    pub(crate) fn wake(&mut self, by: u32) {
        self.rests.retain(|&(known, _)| known != by);
    }

    /// Until when the key rests, if it does.
    pub(crate) fn resting(&self, now: Tick) -> Option<Tick> {
        self.rests.iter().map(|&(_, until)| until).max().filter(|until| *until > now)
    }

    /// Nothing was spent.
    pub(crate) fn reset(&mut self) {
        self.rates.clear();
    }

    /// Forgets what says nothing more than a new one would.
    pub(crate) fn tidy(&mut self, now: Tick) {
        self.rates.retain(|(rate, state)| rate.rests_at(*state) > now);
        self.rests.retain(|&(_, until)| until > now);
    }

    fn make_room(&mut self) {
        if self.rates.len() >= MOST_RATES {
            let first =
                (0..self.rates.len()).min_by_key(|&index| self.rates[index].0.rests_at(self.rates[index].1));
            self.rates.remove(first.expect("a full ledger is not empty"));
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let entry =
            |(rate, state): &(Rate, RateState)| format!("{}:{}", terms::rate_text(rate), state.to_word());
        let rest = |(by, until): &(u32, Tick)| format!("{REST}{by}:{}", until.as_nanos());
        self.rates.iter().map(entry).chain(self.rests.iter().map(rest)).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn from_text(text: &str) -> Result<Self, OptionError> {
        let wrong = || OptionError::new("rates", format_args!("{text:?}"), "text like `rate=20/60000:17`");
        let mut ledger = Ledger::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, word) = part.split_once(':').ok_or_else(wrong)?;
            let word: u64 = word.parse().map_err(|_| wrong())?;
            if let Some(by) = name.strip_prefix(REST) {
                ledger.rests.push((by.parse().map_err(|_| wrong())?, Tick::from_nanos(word)));
                continue;
            }
            let limits = terms::from_text(name)?;
            let rate = limits.as_ref().and_then(Limits::rate).ok_or_else(wrong)?;
            ledger.rates.push((*rate, RateState::from_word(word)));
        }
        Ok(ledger)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rate(starts: u32, period: &str) -> Rate {
        Rate::window(starts, period.parse().expect("a period")).expect("a rate")
    }

    #[test]
    fn a_start_counts_under_every_rate_of_the_key() {
        let (slow, fast) = (rate(2, "1m"), rate(100, "1s"));
        let now = Tick::from_nanos(1_000_000_000_000);
        let mut ledger = Ledger::default();
        ledger.start(Some(&slow), now);
        ledger.start(Some(&fast), now);
        assert!(slow.spend(ledger.spent(&slow, now), now).is_err(), "both starts count under the slow rate");
        let later = now.after(Duration::from_secs(2));
        ledger.start(Some(&fast), later);
        assert!(
            slow.spend(ledger.spent(&slow, later), later).is_err(),
            "a fast window's end forgets nothing"
        );
        assert_eq!(Ledger::from_text(&ledger.to_text()).expect("its own text"), ledger);
        ledger.tidy(now.after(Duration::from_secs(61)));
        assert_eq!(ledger, Ledger::default());
    }

    #[test]
    fn no_more_rates_are_counted_than_there_is_room_for() {
        let now = Tick::from_nanos(1_000_000_000_000);
        let mut ledger = Ledger::default();
        for starts in 1..100 {
            ledger.start(Some(&rate(starts, "1m")), now);
        }
        assert_eq!(ledger.rates.len(), MOST_RATES);
    }

    #[test]
    fn a_key_rests_until_the_last_who_says_so() {
        let now = Tick::from_nanos(1_000_000_000_000);
        let after = |seconds| now.after(Duration::from_secs(seconds));
        let mut ledger = Ledger::default();
        ledger.rest(7, after(10));
        ledger.rest(8, after(20));
        ledger.rest(7, after(5));
        assert_eq!(Ledger::from_text(&ledger.to_text()).expect("its own text"), ledger);
        assert_eq!(ledger.resting(now), Some(after(20)));
        ledger.wake(8);
        assert_eq!((ledger.resting(now), ledger.resting(after(5))), (Some(after(5)), None));
        ledger.reset();
        assert_eq!(ledger.resting(now), Some(after(5)), "what was spent is something else");
        ledger.tidy(after(5));
        assert_eq!(ledger, Ledger::default());
    }
}
