//! The short way at a desk: nearly every step, where nothing unusual goes on.
//!
//! Owns five steps in as few instructions as they can be: into a lane that has room, a check of a lane that
//! has a start left, into a line behind others, out of it from behind others, and out of a lane, handing over
//! to the head of the row. It leaves everything unusual as it was, for [`State`] to see to. Who may start is
//! asked of [`Lane::has_room`], [`Lane::decide`] and [`Lane::hands_over`] here too. Nothing here sets a
//! moment or takes the counts from the express lane.

use std::{num::NonZeroU32, sync::Arc, task::Waker};

use flowgate_core::{Decision, Hold, Lane, Tick};

use super::{
    line::Waiter,
    lone,
    name::Name,
    pass::Standing,
    seat::{Fate, Seat},
    state::{Place, State},
    wait::Ready,
    wakes::Wakes,
};

/// What came of leaving the short way.
pub(super) enum Left {
    /// The slot is this one's now, who has left the line, and is to be told and woken when the lock is gone.
    Handed(Handed),
    /// One was handed the slot and has been told, and the desk is left the long way.
    HandedSlowly,
    /// It has to be done the long way; nothing has changed.
    Not,
}

/// One who was handed a slot. To be told is to have the seat's line of the cache come from where it was last looked at, and
/// nobody has to wait for the lock meanwhile.
pub(super) struct Handed {
    waker: Waker,
    seat: Arc<Seat>,
    in_use: u32,
}

impl Handed {
    /// The seat first, so that who is woken finds it decided.
    pub(super) fn tell(self) {
        self.seat.decide(Fate::handed(self.in_use));
        Wakes::wake_one(Some((self.waker, self.seat)));
    }
}

impl State {
    /// `max`, if steps may take the short way: one set of limits for all, no rate, first in first out, nothing paused or closing.
    /// Looked up anew whenever a step took the long way, as every change does.
    #[inline]
    pub(super) fn max_if_brisk(&self) -> Option<NonZeroU32> {
        let is_brisk = self.is_plain
            && !self.is_codel
            && !self.is_paused
            && self.closing.is_none()
            && !self.is_orphan
            && self.owner.is_some();
        self.limits.max().filter(|_| is_brisk).and_then(NonZeroU32::new)
    }

    /// Enters a key's lane if that has room: the lane, and how much of it is in use now.
    #[inline]
    pub(super) fn enter_brisk(&mut self, key: &Name<'_>, hash: u32, weight: u32) -> Option<(u32, u32)> {
        let max = self.brisk?.get();
        let lone = &mut self.lone;
        let is_new = lone.is_vacant();
        if !is_new && !lone.is_of(hash, key) {
            return self.enter_among(max, key, hash, weight);
        }
        if !lone.lane().has_room(max, weight) {
            return None;
        }
        debug_assert_eq!(lone.lane().decide(&self.limits, weight, Tick::ZERO), Decision::Admit);
        if is_new {
            self.spare = self.spare.checked_sub(1)?;
            lone.begin(hash, key);
        }
        lone.take(weight);
        Some((lone::PLACE, lone.in_use()))
    }

    /// The same where there are others, or come to be.
    #[inline(never)]
    fn enter_among(&mut self, max: u32, key: &Name<'_>, hash: u32, weight: u32) -> Option<(u32, u32)> {
        let index = match self.lanes.find(hash, key.as_bytes()) {
            Some(index) if self.lanes[index].lane.has_room(max, weight) => index,
            None if Lane::default().has_room(max, weight) => {
                self.spare = self.spare.checked_sub(1)?;
                if self.lone.is_there() {
                    self.move_in();
                }
                self.insert_lane(hash, key)
            }
            _ => return None,
        };
        let lane = &mut self.lanes[index].lane;
        debug_assert_eq!(lane.decide(&self.limits, weight, Tick::ZERO), Decision::Admit);
        lane.take(weight);
        let in_use = lane.in_use();
        self.lanes.taken += u64::from(weight);
        Some((index, in_use))
    }

    /// Spends one start of a key's lane that remembers others, and stands in the list of idle lanes: then nothing else
    /// changes, and nothing comes to be due.
    #[inline]
    pub(super) fn check_brisk(&mut self, key: &Name<'_>, hash: u32) -> bool {
        if self.is_paused || self.is_unset || self.closing.is_some() {
            return false;
        }
        let Some(index) = self.lanes.find(hash, key.as_bytes()) else { return false };
        // Asked for only now: the processor does so while the lane is on its way from memory.
        let now = self.now();
        let slot = &mut self.lanes[index];
        if !slot.is_listed() || slot.is_pinned() || slot.lane.decide(&self.limits, 1, now) != Decision::Admit
        {
            return false;
        }
        slot.lane.admit(&self.limits, 1, now);
        slot.lane.settle(1);
        slot.used_at = now;
        true
    }

    /// Joins the line of the one lane behind others. It holds nothing here, and nobody listens.
    #[inline]
    pub(super) fn join_brisk(&mut self, weight: u32, ready: Ready) -> Result<Place, Ready> {
        if self.brisk.is_none() || self.line.waiting() == 0 {
            return Err(ready);
        }
        let mut lane = self.lanes[0].lane;
        lane.set_waiting(self.line.waiting() as u32);
        if lane.decide(&self.limits, weight, Tick::ZERO) != Decision::Wait(Hold::Line) {
            return Err(ready);
        }
        let Ready { since, waker, seat } = ready;
        let waiter = Waiter::new(0, weight, false, since, waker, Arc::clone(&seat));
        let ticket = self.line.join(&mut self.line.row(), waiter);
        self.is_behind = true;
        Ok(Place { lane: 0, ticket, since, depth: lane.waiting() + 1, seat })
    }

    /// What became of one who waited. One who is not in line any more, and was not told of anything, was handed a slot:
    /// whoever did that tells it only after the lock is gone.
    pub(super) fn fate(&self, place: &Place) -> Fate {
        match place.seat.fate() {
            Fate::Waiting if !self.line.is_of(place.ticket, &place.seat) => {
                Fate::handed(self.lanes[place.lane].lane.in_use())
            }
            fate => fate,
        }
    }

    /// One who stands behind others in its row gives up, which changes nothing for anybody: what it was to be woken by.
    #[inline]
    pub(super) fn cancel_brisk(&mut self, place: &Place) -> Option<Waker> {
        if self.brisk.is_none() || self.fate(place) != Fate::Waiting {
            return None;
        }
        let slot = &mut self.lanes[place.lane];
        let mut row = if self.is_keyed { slot.row } else { self.line.row() };
        if row.first() == Some(place.ticket) {
            return None;
        }
        let waiter = self.line.part(&mut row, place.ticket);
        if self.is_keyed {
            slot.lane.leave();
            slot.row = row;
        } else {
            self.is_behind = true;
        }
        if waiter.is_holder {
            self.knots.part(place.lane, place.ticket);
        }
        Some(waiter.waker)
    }

    /// The one lane says again who waits: see [`State::is_behind`].
    pub(super) fn catch_up(&mut self) {
        self.is_behind = false;
        let slot = &mut self.lanes[0];
        slot.row = self.line.row();
        slot.lane.set_waiting(self.line.waiting() as u32);
    }

    /// A pass of a key's lane comes back where nobody waits; `false` if it has to be done another way, and nothing has changed.
    #[inline(always)]
    pub(super) fn settle_brisk(&mut self, index: u32, weight: u32) -> bool {
        if self.lone.is_there() {
            debug_assert!(self.brisk.is_some() && index == lone::PLACE, "nothing unusual goes on");
            self.spare += u32::from(self.lone.settle(weight));
            return true;
        }
        if self.brisk.is_none() || !self.is_keyed {
            return false;
        }
        let slot = &mut self.lanes[index];
        if slot.row.first().is_some() {
            return false;
        }
        slot.lane.settle(weight);
        let is_idle = slot.lane.is_idle();
        self.lanes.taken -= u64::from(weight);
        if is_idle {
            self.forget(index);
        }
        true
    }

    /// How the lone lane stands, if it is there: then `max` is all that holds.
    #[inline]
    pub(super) fn lone_standing(&self) -> Option<Standing> {
        let lone = &self.lone;
        let standing = || Standing { max: self.limits.max(), in_use: lone.in_use(), waiting: 0 };
        lone.is_there().then(standing)
    }

    /// A pass comes back, to the head of the row.
    #[inline]
    pub(super) fn leave_brisk(&mut self, index: u32, weight: u32) -> Left {
        if self.brisk.is_none() || self.is_out {
            return Left::Not;
        }
        let slot = &mut self.lanes[index];
        let mut row = if self.is_keyed { slot.row } else { self.line.row() };
        let Some(ticket) = row.first() else { return Left::Not };
        // Some may have waited too long, and listeners are told for how long.
        if self.limits.timeout().is_some()
            || !slot.lane.hands_over(&self.limits, weight, self.line[ticket].weight)
            || self.owner.as_ref().is_none_or(|meta| meta.bus.is_on())
        {
            return Left::Not;
        }
        let waiter = self.line.part_first(&mut row, ticket);
        if self.is_keyed {
            slot.lane.leave();
            slot.row = row;
        } else {
            self.is_behind = true;
        }
        let in_use = slot.lane.in_use();
        if waiter.is_holder {
            self.knots.part(index, ticket);
        }
        if self.line.heaviest() > self.limits.heaviest() {
            // One too heavy for a lower `max` may have come to the head and can be told so.
            waiter.seat.decide(Fate::handed(in_use));
            self.wakes.wake_later(waiter.waker, waiter.seat);
            if self.is_behind {
                self.catch_up();
            }
            self.pump(index);
            return Left::HandedSlowly;
        }
        Left::Handed(Handed { waker: waiter.waker, seat: waiter.seat, in_use })
    }
}
