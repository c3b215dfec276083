//! The express lane: entry and exit of a gate without keys by one compare-and-swap each.
//!
//! Owns two words that hold the counts of a gate's one lane while nothing unusual goes on. As soon as anything does
//! (somebody waits, a pause, a close, a change), the desk takes the counts to itself and both words say [`AWAY`]; every
//! entry and exit then goes through the desk's lock until the counts are put back. So the lock's holder always knows the
//! whole truth, and the fast path never reads anything but one word. It must be fetched and put back under that lock only.

use std::time::Duration;

use flowgate_core::{Rate, RateState, Reason};

use super::{pass::Standing, state::Turned};
use crate::{
    clock::Time,
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// The counts are with the desk.
const AWAY: u64 = u64::MAX;
/// Beside the free slots: somebody listens, so entries have something to tell. It is a part of the same word so that an
/// entry that nobody listens to need not ask: what it finds here says room or not, and everything unusual is not.
const HEARD: u64 = 1 << 63;

/// On a cache line of its own: while the counts are away it is only read.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Express {
    /// How many slots are free, with [`HEARD`] or without; or [`AWAY`].
    slots: AtomicU64,
    /// The word of the rate, or [`AWAY`].
    rate: AtomicU64,
    /// What `max` is; read only to tell listeners how many slots are taken.
    max: AtomicU32,
    /// How many slots are taken where the rate alone is here: those come and go by the desk.
    taken: AtomicU32,
}

/// Why the express lane did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed<T> {
    /// The counts are here and say no.
    Refused(T),
    /// The counts are with the desk.
    Away,
}

impl Express {
    pub(crate) fn new() -> Self {
        Express {
            slots: AtomicU64::new(AWAY),
            rate: AtomicU64::new(AWAY),
            max: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// Takes one slot where nobody listens; `false` says nothing but that it has to be tried the long way.
    #[inline]
    pub(crate) fn take_unheard(&self) -> bool {
        let mut free = self.slots.load(Ordering::Relaxed);
        loop {
            let left = free.wrapping_sub(1);
            // None free, somebody listens, or the counts are away.
            if left >= HEARD - 1 {
                return false;
            }
            match self.slots.compare_exchange_weak(free, left, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => free = seen,
            }
        }
    }

    /// As [`Express::take_unheard`] if there were no events in this house: for the benchmark that shows what they cost.
    #[inline]
    pub(crate) fn take_deaf(&self) -> bool {
        let mut free = self.slots.load(Ordering::Relaxed);
        loop {
            if free & !HEARD == 0 || free == AWAY {
                return false;
            }
            match self.slots.compare_exchange_weak(free, free - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => free = seen,
            }
        }
    }

    /// Takes `weight` slots, whether somebody listens or not, and says how many are left; `None` if there are too few,
    /// or the counts are away.
    #[inline]
    pub(crate) fn take(&self, weight: u32) -> Option<u64> {
        let mut word = self.slots.load(Ordering::Relaxed);
        loop {
            let left = known(word)?.checked_sub(u64::from(weight))?;
            let next = left | word & HEARD;
            match self.slots.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(left),
                Err(seen) => word = seen,
            }
        }
    }

    /// Whether it says that somebody listens.
    pub(crate) fn is_heard(&self) -> bool {
        let word = self.slots.load(Ordering::Relaxed);
        word != AWAY && word & HEARD != 0
    }

    /// Whether the counts of slots are with the desk.
    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        self.slots.load(Ordering::Relaxed) == AWAY
    }

    /// Whether the counts are here and say that there are too few slots.
    pub(crate) fn lacks(&self, weight: u32) -> bool {
        known(self.slots.load(Ordering::Relaxed)).is_some_and(|free| free < u64::from(weight))
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

    /// Spends one start of the rate; when refused, how long it will be until there is one.
    ///
    /// The time is asked for after the word was read. One who asked first and was kept from going on would find a word
    /// from long after its moment, take it for one of a clock that was set back, and begin the rate anew.
    #[inline]
    pub(crate) fn spend(&self, rate: &Rate, time: &Time) -> Result<(), Missed<Duration>> {
        let mut word = self.rate.load(Ordering::Acquire);
        loop {
            if word == AWAY {
                return Err(Missed::Away);
            }
            let now = time.now();
            let spent = rate.spend(RateState::from_word(word), now);
            let spent = spent.map_err(|until| Missed::Refused(until.since(now)))?.to_word();
            match self.rate.compare_exchange_weak(word, spent, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
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
        let word = self.rate.swap(AWAY, Ordering::AcqRel);
        (word != AWAY).then(|| RateState::from_word(word))
    }

    /// Puts the slots back. Under the desk's lock.
    pub(crate) fn put_slots(&self, free: u32, max: u32, is_heard: bool) {
        self.max.store(max, Ordering::Relaxed);
        let heard = if is_heard { HEARD } else { 0 };
        self.slots.store(u64::from(free) | heard, Ordering::Release);
    }

    /// Puts the rate's state back. Under the desk's lock.
    pub(crate) fn put_rate(&self, state: RateState, taken: u32) {
        self.taken.store(taken, Ordering::Relaxed);
        self.rate.store(state.to_word(), Ordering::Release);
    }

    /// A refusal by what is seen here: too few slots for this weight.
    pub(crate) fn turned(&self, weight: u32) -> Turned {
        let max = self.max.load(Ordering::Relaxed);
        let reason = if weight > max { Reason::TooHeavy } else { Reason::Busy };
        let free = known(self.slots.load(Ordering::Relaxed)).unwrap_or(0);
        Turned { in_use: self.in_use(free), max: Some(max), ..Turned::new(reason) }
    }

    /// A refusal by what is seen here: no start of the rate for so long.
    pub(crate) fn spent(&self, wait: Duration) -> Turned {
        let in_use = self.taken.load(Ordering::Relaxed);
        Turned { retry_after: Some(wait), in_use, ..Turned::new(Reason::Rate) }
    }

    /// How the lane stands, if the slots are here: then nobody waits.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let free = known(self.slots.load(Ordering::Acquire))?;
        let max = self.max.load(Ordering::Relaxed);
        Some(Standing { max: Some(max), in_use: self.in_use(free), waiting: 0 })
    }

    /// How many slots are taken when so many are free.
    pub(crate) fn in_use(&self, free: u64) -> u32 {
        self.max.load(Ordering::Relaxed).saturating_sub(free as u32)
    }
}

/// The free slots, if they are here.
#[inline]
fn known(word: u64) -> Option<u64> {
    (word != AWAY).then_some(word & !HEARD)
}
