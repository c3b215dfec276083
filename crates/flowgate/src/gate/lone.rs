//! The lone lane: the only one of a desk, while nothing of it changes but a count.
//!
//! Owns its key and how much of it is in use, beside the desk's lock and in the same cache line. Few desks ever have two lanes
//! at once, so what threads with different keys fetch from each other is that one line. It never decides
//! who starts. As soon as another lane comes, or a step takes the long way, it moves in with the others
//! ([`State::move_in`]).

use flowgate_core::{Key, Lane, RateState};

use super::{name::Name, state::State};

/// Its place among the others, which is kept for it: passes find it by the same number before and after it has moved.
pub(super) const PLACE: u32 = 0;

/// In `in_use`: all lanes there are stand among the others. Far above the largest `max`.
const AWAY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Lone {
    key: Key,
    hash: u32,
    /// Zero where the desk has no lane at all; or [`AWAY`].
    in_use: u32,
}

impl Lone {
    pub(super) const fn new() -> Self {
        Lone { key: Key::EMPTY, hash: 0, in_use: 0 }
    }

    /// Whether there is one.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        !self.is_vacant() && self.in_use != AWAY
    }

    /// Whether the desk has no lane at all, so that the next to come is the lone one.
    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        self.in_use == 0
    }

    /// Whether it is there and of this key.
    #[inline]
    pub(super) fn is_of(&self, hash: u32, key: &Name<'_>) -> bool {
        self.hash == hash && self.is_there() && self.key.as_bytes() == key.as_bytes()
    }

    /// How much of it is in use; nothing where it is not there.
    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        if self.in_use == AWAY { 0 } else { self.in_use }
    }

    /// What is asked who may start.
    #[inline]
    pub(super) fn lane(&self) -> Lane {
        Lane::with_counts(self.in_use(), RateState::default())
    }

    /// The first of a key comes. Only where it is vacant.
    #[inline]
    pub(super) fn begin(&mut self, hash: u32, key: &Name<'_>) {
        self.hash = hash;
        key.write_to(&mut self.key);
    }

    #[inline]
    pub(super) fn take(&mut self, weight: u32) {
        self.in_use += weight;
    }

    /// Whether it is gone by that.
    #[inline]
    pub(super) fn settle(&mut self, weight: u32) -> bool {
        debug_assert!(self.is_there() && self.in_use >= weight, "more came back than went out");
        self.in_use -= weight;
        let is_gone = self.is_vacant();
        if is_gone {
            self.key.set("");
        }
        is_gone
    }

    /// From now on lanes stand among the others, this one with them: its key, hash and what is in use.
    pub(super) fn go(&mut self) -> (Key, u32, u32) {
        let in_use = self.in_use();
        self.in_use = AWAY;
        (std::mem::replace(&mut self.key, Key::EMPTY), self.hash, in_use)
    }

    /// No lane is left among the others.
    pub(super) fn come_back(&mut self) {
        self.in_use = 0;
    }
}

impl State {
    /// The lone lane takes its place among the others.
    #[inline]
    pub(super) fn move_in(&mut self) {
        let (key, hash, in_use) = self.lone.go();
        self.lanes.move_in(key, hash, in_use);
    }

    /// Puts in an idle lane among others. The lone one has moved in before.
    #[inline]
    pub(super) fn insert_lane(&mut self, hash: u32, key: &Name<'_>) -> u32 {
        debug_assert!(!self.lone.is_there(), "it moves in before another comes");
        if self.lone.is_vacant() {
            self.lone.go();
        }
        self.lanes.insert(hash, key)
    }

    /// Where it was the last of the others, the next to come is the lone one.
    #[inline]
    pub(super) fn remove_lane(&mut self, index: u32) {
        self.lanes.remove(index);
        if self.lanes.len() == 0 {
            self.lone.come_back();
        }
    }

    /// How many lanes there are.
    pub(super) fn lane_count(&self) -> usize {
        self.lanes.len() + usize::from(self.lone.is_there())
    }

    /// How many slots are taken, over all lanes.
    pub(super) fn in_use(&self) -> u64 {
        self.lanes.taken + u64::from(self.lone.in_use())
    }
}
