//! Work that would wait for itself.
//!
//! Owns the rule of G12: when every slot of a lane is held by work that itself waits in that lane's row, and the head of
//! the row waits for a slot, nobody can ever go on. One of them is refused instead. Only work whose holder is known
//! ([`holding`](super::holding)) is seen.

use std::collections::BTreeMap;

use flowgate_core::{Hold, Reason, Spot, Tick};

use super::state::{Ask, State};

/// Which passes of a lane a piece of work holds, each with its weight.
pub(super) type Hands = BTreeMap<usize, u32>;

/// What those in line hold of the very lane that they wait for, by their tickets. Nearly always there is nobody.
#[derive(Debug, Default)]
pub(crate) struct Knots(BTreeMap<u32, Hands>);

impl Knots {
    pub(super) fn join(&mut self, ticket: u32, hands: Hands) {
        self.0.insert(ticket, hands);
    }

    pub(super) fn part(&mut self, ticket: u32) {
        self.0.remove(&ticket);
    }
}

impl State {
    /// The weight of this lane's passes held by work that waits in this lane's own row, or holds these. A pass counts
    /// once, however many entries the work that holds it has in line.
    fn stuck(&self, index: u32, mut hands: Hands) -> u32 {
        if !self.knots.0.is_empty() {
            let row = self.lanes[index].row;
            for ticket in std::iter::successors(row.first(), |&ticket| self.line.behind(ticket)) {
                hands.extend(self.knots.0.get(&ticket).into_iter().flatten());
            }
        }
        hands.into_values().fold(0, u32::saturating_add)
    }

    /// Whether all that is in use in a lane is held by work that waits there.
    pub(super) fn is_knotted(&self, index: u32) -> bool {
        let stuck = self.stuck(index, Hands::new());
        stuck > 0 && stuck >= self.lanes[index].lane.in_use()
    }

    /// Where the work that asks holds a slot of this lane, if joining the row would tie the knot.
    pub(super) fn waits_for_itself(&self, ask: &Ask<'_>, found: Option<u32>, now: Tick) -> Option<Spot> {
        let index = found?;
        let (hands, spot) = ask.hands_of(index)?;
        let slot = &self.lanes[index];
        let head = self.next_before_a_newcomer(index).map_or(ask.weight, |ticket| self.line[ticket].weight);
        let waits_for_slots = slot.lane.hold(self.limits_at(found), head, now) == Some(Hold::Slots);
        (waits_for_slots && self.stuck(index, hands) >= slot.lane.in_use()).then_some(spot)
    }

    /// Refuses the first in the row that holds a slot of this lane, so that its work can end and give the slot back.
    pub(super) fn cut_knot(&mut self, index: u32) {
        let mut ticket = self.lanes[index].row.first();
        while let Some(waiting) = ticket {
            if self.line[waiting].is_holder {
                return self.refuse(waiting, Reason::Reentrant);
            }
            ticket = self.line.behind(waiting);
        }
    }
}
