//! Lines under CoDel: since when each stands, for whom slots are kept, and when it wants to be looked at.
//!
//! Owns what that discipline needs beside a lane: an entry for each lane that has a line under it, and for no other, so that
//! lanes and waiters stay as small as they are and a line that is first in, first out costs nothing more. A moment is taken
//! back with its entry: a line that forms and clears a million times within an interval leaves nothing behind. The rule itself
//! is `flowgate-core`'s ([`Discipline`]).

use std::collections::{BTreeMap, BTreeSet};

use flowgate_core::{Backlog, Discipline, End, Hold, Reason, Tick};

use super::{
    slab::NONE,
    state::{State, in_force},
};

#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    entries: BTreeMap<u32, Entry>,
    /// By moment, then by lane: one for each entry.
    due: BTreeSet<(Tick, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    backlog: Backlog,
    /// The waiter who is next and found slots free, but too few: they are kept for it until it starts or leaves.
    kept_for: u32,
    due: Tick,
}

impl Backlogs {
    fn put(&mut self, lane: u32, entry: Entry) {
        let old = self.entries.insert(lane, entry).map(|old| old.due);
        if old != Some(entry.due) {
            old.map(|due| self.due.remove(&(due, lane)));
            self.due.insert((entry.due, lane));
        }
    }

    fn remove(&mut self, lane: u32) {
        if let Some(entry) = self.entries.remove(&lane) {
            self.due.remove(&(entry.due, lane));
        }
    }

    /// The earliest moment at which a lane wants to be looked at, and which.
    pub(super) fn first(&self) -> Option<(Tick, u32)> {
        self.due.first().copied()
    }
}

impl State {
    /// Whether CoDel is the discipline of any lane here.
    pub(super) fn has_codel(&self) -> bool {
        let is_codel = |discipline| discipline != Discipline::Fifo;
        is_codel(self.limits.discipline()) || self.pins.values().any(|pin| is_codel(pin.discipline()))
    }

    fn discipline(&self, index: u32) -> Discipline {
        in_force(&self.limits, &self.pins, &self.lanes[index]).discipline()
    }

    /// Who is next in a lane's row. `now` matters under CoDel only.
    #[inline]
    pub(super) fn next_in(&self, index: u32, now: Tick) -> Option<u32> {
        let row = &self.lanes[index].row;
        if self.is_codel && self.is_newest_first(index, now) {
            return self.kept_for(index).or(row.last());
        }
        row.first()
    }

    /// Who would be next in a lane's row if one more joined; `None` if it would be that one.
    pub(super) fn next_before_a_newcomer(&self, index: u32) -> Option<u32> {
        if self.is_codel && self.is_newest_first(index, self.now()) {
            return self.kept_for(index);
        }
        self.lanes[index].row.first()
    }

    fn is_newest_first(&self, index: u32, now: Tick) -> bool {
        let entry = self.backlogs.entries.get(&index);
        entry.is_some_and(|entry| self.discipline(index).next(entry.backlog, now) == End::Newest)
    }

    fn kept_for(&self, index: u32) -> Option<u32> {
        let entry = self.backlogs.entries.get(&index)?;
        (entry.kept_for != NONE).then_some(entry.kept_for)
    }

    /// Somebody joined a row, held back by `hold`: if it is the first there, the count begins.
    pub(super) fn begin_backlog(&mut self, index: u32, hold: Hold, now: Tick) {
        if self.discipline(index) != Discipline::Fifo && !self.backlogs.entries.contains_key(&index) {
            let mut backlog = Backlog::new(now);
            backlog.held(hold, now);
            self.put_backlog(index, backlog, NONE, now);
        }
    }

    /// Somebody left a row: with the last one the count ends.
    pub(super) fn leave_backlog(&mut self, index: u32, ticket: u32) {
        if self.lanes[index].row.first().is_none() {
            self.backlogs.remove(index);
        } else if let Some(entry) = self.backlogs.entries.get_mut(&index)
            && entry.kept_for == ticket
        {
            entry.kept_for = NONE;
        }
    }

    /// The row has come to a halt: `hold` holds back the one who is next. Says whether another is next for that.
    pub(super) fn halt_backlog(&mut self, index: u32, ticket: u32, hold: Hold, now: Tick) -> bool {
        let Some(mut backlog) = self.backlogs.entries.get(&index).map(|entry| entry.backlog) else {
            return false;
        };
        backlog.held(hold, now);
        let slot = &self.lanes[index];
        let most = in_force(&self.limits, &self.pins, slot).max();
        let is_kept = hold == Hold::Slots && most.is_some_and(|most| slot.lane.in_use() < most);
        self.put_backlog(index, backlog, if is_kept { ticket } else { NONE }, now);
        self.next_in(index, now) != Some(ticket)
    }

    fn put_backlog(&mut self, index: u32, backlog: Backlog, kept_for: u32, now: Tick) {
        let oldest = self.lanes[index].row.first().map_or(now, |ticket| self.line[ticket].since);
        let due = self.discipline(index).look_at(backlog, oldest, now);
        self.backlogs.put(index, Entry { backlog, kept_for, due });
    }

    /// Turns away those who have waited too long in a lane's row; before anybody there is handed a slot.
    pub(super) fn turn_away_late(&mut self, index: u32, now: Tick) {
        while let Some(entry) = self.backlogs.entries.get(&index)
            && let Some(oldest) = self.lanes[index].row.first()
            && self.discipline(index).deadline(entry.backlog, self.line[oldest].since, now) <= now
        {
            self.refuse(oldest, Reason::QueueTimeout);
        }
    }

    /// Looks at the lanes that want it by now. In a pause nobody does: it holds everybody, and says nothing about load.
    pub(super) fn expire_backlogs(&mut self, now: Tick) {
        while let Some((at, index)) = self.backlogs.first()
            && at <= now
            && !self.is_paused
        {
            self.pump(index);
            self.rest(index);
        }
    }

    /// Other limits hold in a lane: the count goes on where it was kept before, and begins where it was not.
    pub(super) fn renew_backlog(&mut self, index: u32, now: Tick) {
        if self.discipline(index) == Discipline::Fifo {
            self.backlogs.remove(index);
        } else if self.lanes[index].row.first().is_some() {
            self.begin_backlog(index, Hold::Slots, now);
        }
    }

    /// As [`State::renew_backlog`], in every lane.
    pub(super) fn renew_backlogs(&mut self, now: Tick) {
        let has_codel = self.has_codel();
        let had_codel = std::mem::replace(&mut self.is_codel, has_codel);
        if had_codel || has_codel {
            for index in self.lanes.indices() {
                self.renew_backlog(index, now);
            }
        }
    }

    /// A pause has ended: every count begins anew.
    pub(super) fn restart_backlogs(&mut self) {
        let (now, lanes) = (self.now(), self.backlogs.entries.keys().copied().collect::<Vec<_>>());
        for index in lanes {
            self.put_backlog(index, Backlog::new(now), NONE, now);
        }
    }
}
