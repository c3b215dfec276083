//! The express lane: entry and exit of a gate without keys by one compare-and-swap each.
//!
//! Owns two words that hold the counts of a gate's one lane while nothing unusual goes on. As soon as anything does
//! (somebody waits, a pause, a close, a change), the desk takes the counts to itself and both words say [`AWAY`]; every
//! entry and exit then goes through the desk's lock until the counts are put back. So the lock's holder always knows the
//! whole truth, and the fast path never reads anything but one word. It must be fetched and put back under that lock only.

use flowgate_core::{Rate, RateState, Reason, Tick};

use super::state::Turned;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The counts are with the desk.
const AWAY: u64 = u64::MAX;

/// On a cache line of its own: while the counts are away it is only read.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Express {
    /// How many slots are free, or [`AWAY`].
    slots: AtomicU64,
    /// The word of the rate, or [`AWAY`].
    rate: AtomicU64,
    /// What `max` is; read only to tell listeners how many slots are taken.
    max: AtomicU32,
}

/// What an attempt on the express lane came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<T> {
    Done,
    /// The counts are here and say no.
    Refused(T),
    /// The counts are with the desk.
    Away,
}

impl Express {
    pub(crate) fn new() -> Self {
        Express { slots: AtomicU64::new(AWAY), rate: AtomicU64::new(AWAY), max: AtomicU32::new(0) }
    }

    /// Takes `weight` slots.
    #[inline]
    pub(crate) fn take(&self, weight: u32) -> Attempt<()> {
        let mut free = self.slots.load(Ordering::Relaxed);
        loop {
            if free == AWAY {
                return Attempt::Away;
            }
            let Some(left) = free.checked_sub(u64::from(weight)) else {
                return Attempt::Refused(());
            };
            match self.slots.compare_exchange_weak(free, left, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Attempt::Done,
                Err(seen) => free = seen,
            }
        }
    }

    /// Whether the counts are here and say that there are too few slots.
    pub(crate) fn lacks(&self, weight: u32) -> bool {
        self.slots.load(Ordering::Relaxed) < u64::from(weight)
    }

    /// Gives `weight` slots back; `false` when the counts are with the desk. After `true` the caller owns nothing here.
    #[inline]
    pub(crate) fn give(&self, weight: u32) -> bool {
        let mut free = self.slots.load(Ordering::Relaxed);
        loop {
            if free == AWAY {
                return false;
            }
            let more = free + u64::from(weight);
            match self.slots.compare_exchange_weak(free, more, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => free = seen,
            }
        }
    }

    /// Spends one start of the rate; when refused, until when.
    #[inline]
    pub(crate) fn spend(&self, rate: &Rate, now: Tick) -> Attempt<Tick> {
        let mut word = self.rate.load(Ordering::Relaxed);
        loop {
            if word == AWAY {
                return Attempt::Away;
            }
            let spent = match rate.spend(RateState::from_word(word), now) {
                Ok(spent) => spent.to_word(),
                Err(until) => return Attempt::Refused(until),
            };
            match self.rate.compare_exchange_weak(word, spent, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Attempt::Done,
                Err(seen) => word = seen,
            }
        }
    }

    /// Fetches the free slots to the desk, if they are here. Under the desk's lock.
    pub(crate) fn fetch_slots(&self) -> Option<u32> {
        known(self.slots.swap(AWAY, Ordering::AcqRel)).map(|free| free as u32)
    }

    /// Fetches the rate's state to the desk, if it is here. Under the desk's lock.
    pub(crate) fn fetch_rate(&self) -> Option<RateState> {
        known(self.rate.swap(AWAY, Ordering::AcqRel)).map(RateState::from_word)
    }

    /// Puts the slots back. Under the desk's lock.
    pub(crate) fn put_slots(&self, free: u32, max: u32) {
        self.max.store(max, Ordering::Relaxed);
        self.slots.store(u64::from(free), Ordering::Release);
    }

    /// Puts the rate's state back. Under the desk's lock.
    pub(crate) fn put_rate(&self, state: RateState) {
        self.rate.store(state.to_word(), Ordering::Release);
    }

    /// A refusal by what is seen here: too few slots for this weight.
    pub(crate) fn turned(&self, weight: u32) -> Turned {
        let max = self.max.load(Ordering::Relaxed);
        let reason = if weight > max { Reason::TooHeavy } else { Reason::Busy };
        Turned { in_use: self.in_use(), max: Some(max), ..Turned::new(reason) }
    }

    /// How many slots are taken, for a listener: exact when nothing else moves.
    pub(crate) fn in_use(&self) -> u32 {
        let free = known(self.slots.load(Ordering::Relaxed)).unwrap_or(0) as u32;
        self.max.load(Ordering::Relaxed).saturating_sub(free)
    }
}

fn known(word: u64) -> Option<u64> {
    (word != AWAY).then_some(word)
}
