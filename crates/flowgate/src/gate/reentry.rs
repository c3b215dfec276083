//! Work that would wait for itself.
//!
//! Owns the rule of G12: when every slot of a lane is held by work that itself waits in that lane's row, and the head of
//! the row waits for a slot, nobody can ever go on. One of them is refused instead. Only work whose holder is known
//! ([`holding`](super::holding)) is seen.

use flowgate_core::{Hold, Reason, Spot, Tick};

use super::state::{Ask, State};

impl State {
    /// The weight of this lane's passes held by work that waits in this lane's own row.
    fn stuck(&self, index: u32) -> u32 {
        if self.entangled == 0 {
            return 0;
        }
        let row = std::iter::successors(self.lanes[index].row.first(), |&ticket| self.line.behind(ticket));
        row.fold(0, |stuck: u32, ticket| stuck.saturating_add(self.line[ticket].holds))
    }

    /// Whether all that is in use in a lane is held by work that waits there.
    pub(super) fn is_knotted(&self, index: u32) -> bool {
        let stuck = self.stuck(index);
        stuck > 0 && stuck >= self.lanes[index].lane.in_use()
    }

    /// Where the work that asks holds a slot of this lane, if joining the row would tie the knot.
    pub(super) fn waits_for_itself(&self, ask: &Ask<'_>, found: Option<u32>, now: Tick) -> Option<Spot> {
        let index = found?;
        let (weight, spot) = ask.holds_of(index)?;
        let slot = &self.lanes[index];
        let head = self.next_before_a_newcomer(index).map_or(ask.weight, |ticket| self.line[ticket].weight);
        let waits_for_slots = slot.lane.hold(self.limits_at(found), head, now) == Some(Hold::Slots);
        (waits_for_slots && self.stuck(index).saturating_add(weight) >= slot.lane.in_use()).then_some(spot)
    }

    /// Refuses the first in the row that holds a slot of this lane, so that its work can end and give the slot back.
    pub(super) fn cut_knot(&mut self, index: u32) {
        let mut ticket = self.lanes[index].row.first();
        while let Some(waiting) = ticket {
            if self.line[waiting].holds > 0 {
                return self.refuse(waiting, Reason::Reentrant);
            }
            ticket = self.line.behind(waiting);
        }
    }
}
