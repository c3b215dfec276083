//! How often a key started, counted under each rate that somebody sent it with.
//!
//! Tasks of one key may carry different limits, and each waits under its own. So every start of the key is counted under
//! every rate of the key that is still running. Owns those counts and their text in a store; it never reads a clock.

use flowgate_core::{Limits, OptionError, Rate, RateState, Tick};

use crate::terms;

/// More rates than these are not counted apart: the one that rests first makes room.
const MOST_RATES: usize = 16;

/// The counts of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ledger(Vec<(Rate, RateState)>);

impl Ledger {
    /// What is spent under this rate. One not seen before takes over what is known under the latest.
    pub(crate) fn spent(&self, rate: &Rate, now: Tick) -> RateState {
        let same = self.0.iter().find(|(known, _)| known == rate);
        same.map(|&(_, state)| state)
            .or_else(|| self.0.last().map(|(known, state)| rate.carry(known, *state, now)))
            .unwrap_or_default()
    }

    /// One more start of the key, under `rate` if there is one, and under all others that are counted. A rate that allows no
    /// more is full already.
    pub(crate) fn start(&mut self, rate: Option<&Rate>, now: Tick) {
        if let Some(rate) = rate.filter(|rate| self.0.iter().all(|(known, _)| known != *rate)) {
            let spent = self.spent(rate, now);
            self.make_room();
            self.0.push((*rate, spent));
        }
        for (rate, state) in &mut self.0 {
            *state = rate.spend(*state, now).unwrap_or(*state);
        }
    }

    /// Forgets what says nothing more than a new one would.
    pub(crate) fn tidy(&mut self, now: Tick) {
        self.0.retain(|(rate, state)| rate.rests_at(*state) > now);
    }

    fn make_room(&mut self) {
        if self.0.len() >= MOST_RATES {
            let first = (0..self.0.len()).min_by_key(|&index| self.0[index].0.rests_at(self.0[index].1));
            self.0.remove(first.expect("a full ledger is not empty"));
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let entry =
            |(rate, state): &(Rate, RateState)| format!("{}:{}", terms::rate_text(rate), state.to_word());
        self.0.iter().map(entry).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn from_text(text: &str) -> Result<Self, OptionError> {
        let wrong = || OptionError::new("rates", format_args!("{text:?}"), "text like `rate=20/60000:17`");
        let entry = |part: &str| {
            let (rate, word) = part.split_once(':').ok_or_else(wrong)?;
            let limits = terms::from_text(rate)?;
            let rate = limits.as_ref().and_then(Limits::rate).ok_or_else(wrong)?;
            Ok((*rate, RateState::from_word(word.parse().map_err(|_| wrong())?)))
        };
        text.split(',').filter(|part| !part.is_empty()).map(entry).collect::<Result<_, _>>().map(Ledger)
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
        assert_eq!(ledger.0.len(), MOST_RATES);
    }
}
