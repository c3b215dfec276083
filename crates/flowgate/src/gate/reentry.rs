//! Work that would wait for itself.
//!
//! Owns the rule of G12: when every slot of a lane is held by work that itself waits in that lane's row, and the head of
//! the row waits for a slot, nobody can ever go on. One of them is refused instead. Only work whose holder is known
//! ([`holding`](super::holding)) is seen.

use std::collections::{BTreeMap, btree_map::Entry};

use flowgate_core::{Hold, Reason, Spot, Tick};

use super::state::{Ask, State};

/// Which passes of a lane a piece of work holds, each with its weight.
pub(super) type Hands = BTreeMap<usize, u32>;

/// What those in line hold of the very lane that they wait for. Nearly always there is nobody. What a lane comes to is kept, not
/// counted anew: the row behind one holder may be long, and each of its steps asks.
#[derive(Debug, Default)]
pub(crate) struct Knots {
    /// By their tickets: which in the order of arrival they are, and what they hold.
    holders: BTreeMap<u32, (u64, Hands)>,
    lanes: BTreeMap<u32, Tally>,
    joined: u64,
}

/// The holders in one lane's row.
#[derive(Debug, Default)]
struct Tally {
    /// Their tickets, in the order of the row.
    row: BTreeMap<u64, u32>,
    /// The passes that they hold: the weight of each, and how many of them hold it.
    passes: BTreeMap<usize, (u32, u32)>,
    /// The weight of those passes together.
    weight: u64,
}

impl Knots {
    pub(super) fn join(&mut self, lane: u32, ticket: u32, hands: Hands) {
        self.joined += 1;
        let tally = self.lanes.entry(lane).or_default();
        tally.row.insert(self.joined, ticket);
        for (&pass, &weight) in &hands {
            let (_, holders) = tally.passes.entry(pass).or_insert_with(|| {
                tally.weight += u64::from(weight);
                (weight, 0)
            });
            *holders += 1;
        }
        self.holders.insert(ticket, (self.joined, hands));
    }

    pub(super) fn part(&mut self, lane: u32, ticket: u32) {
        let Some((number, hands)) = self.holders.remove(&ticket) else { return };
        let Entry::Occupied(mut entry) = self.lanes.entry(lane) else { return };
        let tally = entry.get_mut();
        tally.row.remove(&number);
        if tally.row.is_empty() {
            entry.remove();
            return;
        }
        for pass in hands.into_keys() {
            let Entry::Occupied(mut held) = tally.passes.entry(pass) else { continue };
            let (weight, holders) = held.get_mut();
            *holders -= 1;
            if *holders == 0 {
                tally.weight -= u64::from(*weight);
                held.remove();
            }
        }
    }

    /// The weight of this lane's passes held by work that waits in this lane's own row, or holds these. A pass counts
    /// once, however many entries the work that holds it has in line.
    fn stuck(&self, lane: u32, hands: &Hands) -> u64 {
        let tally = self.lanes.get(&lane);
        let is_new = |pass: &usize| tally.is_none_or(|tally| !tally.passes.contains_key(pass));
        let own: u64 =
            hands.iter().filter(|(pass, _)| is_new(pass)).map(|(_, weight)| u64::from(*weight)).sum();
        own + tally.map_or(0, |tally| tally.weight)
    }

    /// The first in this lane's row that holds a slot of it.
    fn first(&self, lane: u32) -> Option<u32> {
        self.lanes.get(&lane)?.row.first_key_value().map(|(_, ticket)| *ticket)
    }
}

impl State {
    /// Whether all that is in use in a lane is held by work that waits there.
    pub(super) fn is_knotted(&self, index: u32) -> bool {
        let stuck = self.knots.stuck(index, &Hands::new());
        stuck > 0 && stuck >= u64::from(self.lanes[index].lane.in_use())
    }

    /// Where the work that asks holds a slot of this lane, if joining the row would tie the knot.
    pub(super) fn waits_for_itself(&self, ask: &Ask<'_>, found: Option<u32>, now: Tick) -> Option<Spot> {
        let index = found?;
        let (hands, spot) = ask.hands_of(index)?;
        let slot = &self.lanes[index];
        let head = self.next_before_a_newcomer(index).map_or(ask.weight, |ticket| self.line[ticket].weight);
        let waits_for_slots = slot.lane.hold(self.limits_at(found), head, now) == Some(Hold::Slots);
        (waits_for_slots && self.knots.stuck(index, &hands) >= slot.lane.in_use().into()).then_some(spot)
    }

    /// Refuses the first in the row that holds a slot of this lane, so that its work can end and give the slot back.
    pub(super) fn cut_knot(&mut self, index: u32) {
        if let Some(ticket) = self.knots.first(index) {
            self.refuse(ticket, Reason::Reentrant);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Hands, Knots};

    #[test]
    fn g12_what_a_lane_comes_to_is_what_those_in_its_row_hold() {
        // Seen to fail: with all lanes counted as one; with a pass forgotten when the first of several that hold it parts; with
        // the weight of a pass that nobody holds any more kept; with the newest of a row taken for its first.
        let (mut knots, mut state) = (Knots::default(), 1_u32);
        let mut known = Vec::<(u32, u32, Hands)>::new();
        for ticket in 0..10_000 {
            // It need not be a good generator.
            let mut chance = |most: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % most
            };
            // Passes of few weights, by few works, in two lanes: as many hold the same one.
            let lane = chance(2);
            let mut some =
                || (0..chance(3)).map(|_| chance(6)).map(|pass| (pass as usize, pass % 3 + 1)).collect();
            let (hands, asks): (Hands, Hands) = (some(), some());
            if known.len() < chance(20) as usize {
                knots.join(lane, ticket, hands.clone());
                known.push((lane, ticket, hands));
            } else if !known.is_empty() {
                let (lane, ticket, _) = known.remove(chance(known.len() as u32) as usize);
                knots.part(lane, ticket);
            }
            for lane in 0..2 {
                let row = || known.iter().filter(|(of, ..)| *of == lane);
                let mut all = asks.clone();
                row().for_each(|(.., hands)| all.extend(hands));
                assert_eq!(
                    knots.stuck(lane, &asks),
                    all.values().map(|weight| u64::from(*weight)).sum::<u64>()
                );
                assert_eq!(knots.first(lane), row().next().map(|(_, ticket, _)| *ticket));
            }
        }
        known.drain(..).for_each(|(lane, ticket, _)| knots.part(lane, ticket));
        assert!(knots.holders.is_empty() && knots.lanes.is_empty());
    }
}
