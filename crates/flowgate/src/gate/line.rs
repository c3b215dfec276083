//! The line: the waiters, in the order they came.
//!
//! Owns the waiters of one desk: for each lane a row, and across lanes the order of arrival, which is also
//! the order of the timeout's deadlines, for all wait equally long. A row is in the order of arrival too,
//! whichever end of it is next. Joining and leaving anywhere is constant time. It decides nothing.

use std::{sync::Arc, task::Waker};

use flowgate_core::Tick;

use super::{
    seat::Seat,
    slab::{NONE, Slab},
};

/// So many places stay allocated when nobody waits.
const KEEP: usize = 64;
/// Double: a line is soon gone, and what it has is copied while all others wait for the lock.
const SHARE: usize = 1;

/// Those who wait at one desk.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Line {
    oldest: u32,
    newest: u32,
    waiters: Slab<Waiter, KEEP, SHARE>,
    heaviest: u32,
}

/// So much at its begin is written by each who joins or leaves; the rest is nearly always only read.
#[cfg(all(target_pointer_width = "64", not(loom)))]
pub(super) const HOT: usize = std::mem::offset_of!(Line, waiters) + Slab::<Waiter, KEEP, SHARE>::HOT;

/// The row of one lane: its first and its last waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    first: u32,
    last: u32,
}

/// One who waits: one cache line.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) lane: u32,
    pub(crate) weight: u32,
    /// Whether the waiting work already holds a pass for this same lane.
    pub(crate) is_holder: bool,
    pub(crate) since: Tick,
    pub(crate) waker: Waker,
    pub(crate) seat: Arc<Seat>,
    /// Means nothing where it is the first of its row: see [`Line::part_first`].
    ahead: u32,
    behind: u32,
    /// Means nothing where it has waited longest.
    older: u32,
    newer: u32,
}

impl Row {
    pub(crate) const EMPTY: Row = Row { first: NONE, last: NONE };

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }
}

impl Waiter {
    pub(crate) fn new(
        lane: u32,
        weight: u32,
        is_holder: bool,
        since: Tick,
        waker: Waker,
        seat: Arc<Seat>,
    ) -> Self {
        Waiter {
            lane,
            weight,
            is_holder,
            since,
            waker,
            seat,
            ahead: NONE,
            behind: NONE,
            older: NONE,
            newer: NONE,
        }
    }
}

impl Line {
    pub(crate) const fn new() -> Self {
        Line { oldest: NONE, newest: NONE, waiters: Slab::new(), heaviest: 0 }
    }

    /// How many wait.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiters.len() as u64
    }

    /// All of them as one row, where there is only one lane.
    #[inline]
    pub(super) fn row(&self) -> Row {
        Row { first: self.oldest, last: self.newest }
    }

    /// Whether it is the one of this seat who waits there.
    pub(super) fn is_of(&self, index: u32, seat: &Arc<Seat>) -> bool {
        self.waiters.find(index).is_some_and(|waiter| Arc::ptr_eq(&waiter.seat, seat))
    }

    /// Since when the longest-waiting one waits, and who it is.
    pub(crate) fn oldest(&self) -> Option<(Tick, u32)> {
        self.waiters.find(self.oldest).map(|waiter| (waiter.since, self.oldest))
    }

    /// The largest weight of any who joined since nobody waited.
    #[inline]
    pub(crate) fn heaviest(&self) -> u32 {
        self.heaviest
    }

    /// Joins at the end of its lane's row.
    #[inline(always)]
    pub(crate) fn join(&mut self, row: &mut Row, mut waiter: Waiter) -> u32 {
        (waiter.ahead, waiter.older) = (row.last, self.newest);
        // Only written when it changes: the line of the cache that it is in is only read, but for this.
        if waiter.weight > self.heaviest || (self.newest == NONE && waiter.weight != self.heaviest) {
            self.heaviest = waiter.weight;
        }
        let index = self.waiters.insert(waiter);
        let (last, newest) = (row.last, self.newest);
        (row.last, self.newest) = (index, index);
        match last {
            NONE => row.first = index,
            last => {
                let ahead = &mut self.waiters[last];
                ahead.behind = index;
                // Mostly the last of the row is the last who came.
                if newest == last {
                    ahead.newer = index;
                    return index;
                }
            }
        }
        match newest {
            NONE => self.oldest = index,
            newest => self.waiters[newest].newer = index,
        }
        index
    }

    /// The first of its lane's row leaves, mostly the longest-waiting of all as well: then nobody else is touched, for the next
    /// may stand in the memory of another processor.
    #[inline(always)]
    pub(crate) fn part_first(&mut self, row: &mut Row, first: u32) -> Waiter {
        let waiter = self.waiters.remove(first);
        row.first = waiter.behind;
        if waiter.behind == NONE {
            row.last = NONE;
        }
        self.part_arrival(first, &waiter);
        waiter
    }

    /// Leaves its lane's row.
    pub(crate) fn part(&mut self, row: &mut Row, index: u32) -> Waiter {
        if row.first == index {
            return self.part_first(row, index);
        }
        let waiter = self.waiters.remove(index);
        let Waiter { ahead, behind, .. } = waiter;
        self.waiters[ahead].behind = behind;
        match behind {
            NONE => row.last = ahead,
            behind => self.waiters[behind].ahead = ahead,
        }
        self.part_arrival(index, &waiter);
        waiter
    }

    /// Leaves the order of arrival.
    #[inline(always)]
    fn part_arrival(&mut self, index: u32, waiter: &Waiter) {
        let Waiter { older, newer, .. } = *waiter;
        if self.oldest == index {
            self.oldest = newer;
            if newer == NONE {
                self.newest = NONE;
            }
            return;
        }
        self.waiters[older].newer = newer;
        match newer {
            NONE => self.newest = older,
            newer => self.waiters[newer].older = older,
        }
    }
}

impl std::ops::Index<u32> for Line {
    type Output = Waiter;

    fn index(&self, index: u32) -> &Waiter {
        &self.waiters[index]
    }
}

impl std::ops::IndexMut<u32> for Line {
    fn index_mut(&mut self, index: u32) -> &mut Waiter {
        &mut self.waiters[index]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::gate::seat;

    const LANES: usize = 3;

    #[test]
    fn g2_g4_whoever_leaves_from_wherever_the_others_keep_their_order() {
        // Seen to fail: with `join` taking the last of the row for the last who came.
        let (mut line, mut rows) = (Line::new(), [Row::EMPTY; LANES]);
        let (mut known, mut state) = (Vec::<(usize, u64, u32)>::new(), 1_u32);
        for step in 1..30_000_u64 {
            // It need not be a good generator.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (lane, most) = ((state >> 16) as usize % LANES, if step / 300 % 2 == 0 { 40 } else { 4 });
            let of_lane = |known: &[(usize, u64, u32)]| known.iter().position(|&(of, ..)| of == lane);
            match state >> 20 & 3 {
                // Who came first of all or of its lane; or anybody.
                0 if !known.is_empty() => {
                    let (lane, since, ticket) = known.remove(0);
                    assert_eq!(rows[lane].first(), Some(ticket));
                    assert_eq!(line.part_first(&mut rows[lane], ticket).since, Tick::from_nanos(since));
                }
                1 if of_lane(&known).is_some() => {
                    let (_, since, ticket) = known.remove(of_lane(&known).expect("there is one"));
                    assert_eq!(line.part_first(&mut rows[lane], ticket).since, Tick::from_nanos(since));
                }
                2 if !known.is_empty() => {
                    let (lane, since, ticket) = known.remove((state >> 22) as usize % known.len());
                    assert_eq!(line.part(&mut rows[lane], ticket).since, Tick::from_nanos(since));
                }
                _ if known.len() < most => {
                    let (waker, seat) = (Waker::noop().clone(), seat::take());
                    let waiter = Waiter::new(lane as u32, 1, false, Tick::from_nanos(step), waker, seat);
                    known.push((lane, step, line.join(&mut rows[lane], waiter)));
                }
                _ => {}
            }
            assert_eq!(line.waiting(), known.len() as u64, "step {step}");
            let oldest = known.first().map(|&(_, since, ticket)| (Tick::from_nanos(since), ticket));
            assert_eq!(line.oldest(), oldest, "step {step}");
            for (lane, row) in rows.iter().enumerate() {
                let expected: Vec<u32> =
                    known.iter().filter(|&&(of, ..)| of == lane).map(|&(.., ticket)| ticket).collect();
                let behind = |&ticket: &u32| Some(line[ticket].behind).filter(|behind| *behind != NONE);
                let seen: Vec<u32> = std::iter::successors(row.first(), behind).collect();
                assert_eq!((seen, row.last()), (expected.clone(), expected.last().copied()), "step {step}");
            }
        }
    }
}
