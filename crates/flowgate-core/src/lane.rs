//! A lane: the live state of one key, and the one decision that everything obeys.
//!
//! Owns who may start ([`Lane::decide`], [`Lane::hold`]) and what each step changes. It keeps counts, never
//! the entrants themselves: the caller keeps the line and wakes the waiters.

use crate::{Limits, Overflow, RateState, Reason, Tick};

/// The live state of one key under a gate. The default is an idle lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    in_use: u32,
    /// How many wait, and in the topmost bit whether the lane is paused: a lane is 16 bytes, and there may be a million.
    waiting: u32,
    rate: RateState,
}

const PAUSED: u32 = 1 << 31;

/// What may become of an entrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It starts now.
    Admit,
    /// It joins the line.
    Wait(Hold),
    /// It is turned away.
    Refuse(Reason),
}

/// What holds an entrant back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The lane is paused.
    Paused,
    /// Others are before it in line.
    Line,
    /// Too few slots are free.
    Slots,
    /// The rate is spent.
    Rate {
        /// The earliest moment at which it allows one more.
        until: Tick,
    },
}

impl Hold {
    /// The reason given to an entrant that will not wait.
    pub const fn reason(self) -> Reason {
        match self {
            Hold::Paused => Reason::Paused,
            Hold::Line | Hold::Slots => Reason::Busy,
            Hold::Rate { .. } => Reason::Rate,
        }
    }
}

impl Lane {
    /// What becomes of a newcomer of this weight. `now` is looked at only where there is a rate.
    #[inline]
    pub fn decide(&self, limits: &Limits, weight: u32, now: Tick) -> Decision {
        if weight > limits.heaviest() {
            return Decision::Refuse(Reason::TooHeavy);
        }
        let is_behind = self.waiting() > 0 && !self.is_paused();
        let hold = if is_behind { Some(Hold::Line) } else { self.hold(limits, weight, now) };
        match (hold, limits.overflow()) {
            (None, _) => Decision::Admit,
            (Some(hold), Overflow::Reject) => Decision::Refuse(hold.reason()),
            (Some(_), Overflow::Queue { max: Some(max), .. }) if self.waiting() >= max.get() => {
                Decision::Refuse(Reason::QueueFull)
            }
            (Some(hold), Overflow::Queue { .. }) => Decision::Wait(hold),
        }
    }

    /// What holds back the head of the line, or an entrant where there is no line.
    #[inline]
    pub fn hold(&self, limits: &Limits, weight: u32, now: Tick) -> Option<Hold> {
        if self.is_paused() {
            return Some(Hold::Paused);
        }
        if !self.fits(limits.max().unwrap_or(u32::MAX), weight) {
            return Some(Hold::Slots);
        }
        let rate = limits.rate()?;
        rate.spend(self.rate, now).err().map(|until| Hold::Rate { until })
    }

    #[inline]
    fn fits(&self, max: u32, weight: u32) -> bool {
        self.in_use.checked_add(weight).is_some_and(|in_use| in_use <= max)
    }

    /// Whether a newcomer of this weight starts where nothing but `max` holds: then it is all that [`Lane::decide`] asks.
    #[inline]
    pub fn has_room(&self, max: u32, weight: u32) -> bool {
        // Nobody waits, and it is not paused.
        self.waiting == 0 && self.fits(max, weight)
    }

    /// A pass of this weight goes out where there is no rate. Only after [`Lane::has_room`] said so.
    #[inline]
    pub fn take(&mut self, weight: u32) {
        self.in_use += weight;
    }

    /// A pass of this weight goes out. Only after [`Lane::hold`] said nothing holds it at the same `now`.
    #[inline]
    pub fn admit(&mut self, limits: &Limits, weight: u32, now: Tick) {
        debug_assert_eq!(self.hold(limits, weight, now), None, "admitted past a hold");
        self.take(weight);
        if let Some(rate) = limits.rate() {
            self.rate = rate.spend(self.rate, now).unwrap_or(self.rate);
        }
    }

    /// A pass of this weight came back.
    #[inline]
    pub fn settle(&mut self, weight: u32) {
        debug_assert!(self.in_use >= weight, "more came back than went out");
        self.in_use -= weight;
    }

    /// Whether a pass of this weight that comes back can go straight to a head of the line of the same weight, with what is
    /// in use unchanged. So it is where nothing but `max` holds and all of it is in use: [`Lane::settle`] and
    /// [`Lane::admit`] would come to the same, and nobody behind the head could start.
    #[inline]
    pub fn hands_over(&self, limits: &Limits, weight: u32, head: u32) -> bool {
        weight == head && limits.rate().is_none() && !self.is_paused() && limits.max() == Some(self.in_use)
    }

    /// A start that was spent never began: `spent` is the lane's rate right after it was given.
    pub fn refund(&mut self, limits: &Limits, spent: RateState, now: Tick) {
        if let Some(rate) = limits.rate() {
            self.rate = rate.refund(self.rate, spent, now);
        }
    }

    /// One more waits.
    pub fn join(&mut self) {
        self.waiting += 1;
    }

    /// One fewer waits.
    pub fn leave(&mut self) {
        self.waiting -= 1;
    }

    /// Sets how many wait, where that was counted elsewhere.
    #[inline]
    pub fn set_waiting(&mut self, waiting: u32) {
        debug_assert!(waiting < PAUSED, "more wait than a line can hold");
        self.waiting = self.waiting & PAUSED | waiting;
    }

    /// Nobody starts until [`Lane::resume`].
    pub fn pause(&mut self) {
        self.waiting |= PAUSED;
    }

    /// Ends a pause.
    pub fn resume(&mut self) {
        self.waiting &= !PAUSED;
    }

    /// Other limits now hold here: what was spent under `old` stays spent under `new`.
    pub fn relimit(&mut self, old: &Limits, new: &Limits, now: Tick) {
        self.rate = match (old.rate(), new.rate()) {
            (Some(old), Some(new)) => new.carry(old, self.rate, now),
            _ => RateState::default(),
        };
    }

    /// How many slots are taken.
    #[inline]
    pub const fn in_use(&self) -> u32 {
        self.in_use
    }

    /// How many wait.
    #[inline]
    pub const fn waiting(&self) -> u32 {
        self.waiting & !PAUSED
    }

    /// What of the rate is spent.
    #[inline]
    pub const fn rate(&self) -> RateState {
        self.rate
    }

    /// Whether it is paused.
    pub const fn is_paused(&self) -> bool {
        self.waiting & PAUSED != 0
    }

    /// Whether nothing is in flight and nobody waits.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.in_use == 0 && self.waiting() == 0
    }

    /// From when on an idle lane says nothing more than a new one would, so that it can be forgotten. A paused one
    /// always says more.
    #[inline]
    pub fn rests_at(&self, limits: &Limits) -> Tick {
        if self.is_paused() {
            return Tick::NEVER;
        }
        limits.rate().map_or(Tick::ZERO, |rate| rate.rests_at(self.rate))
    }

    /// An idle lane with this much of its slots taken and its rate spent: for counts kept elsewhere.
    pub const fn with_counts(in_use: u32, rate: RateState) -> Self {
        Lane { in_use, waiting: 0, rate }
    }
}
