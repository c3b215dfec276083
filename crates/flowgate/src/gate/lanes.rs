//! The lanes of one desk: found by key, kept only while they mean something.
//!
//! Owns the map from keys to lanes. A lane is put in on its first entry and taken out when it is idle and its rate has
//! rested, so an idle key costs nothing. It never decides who starts.

use flowgate_core::{Key, Lane, RateState, Tick};

use super::{line::Row, lone, name::Name, slab::NONE, table::Table};

/// So many places stay allocated where there are no lanes. A gate may have many desks.
const KEEP: usize = 4;
/// A quarter more, not double: at a million lanes the slack is memory somebody pays for.
const SHARE: usize = 4;
/// So few lanes are found without a table.
const FEW: usize = 2;

/// In this order in memory: what comes and goes with lanes is in one cache line. They are found in a table only while there
/// are more than a [`FEW`]: most desks never have more in use at once, and then a table would be one more cache line to fetch
/// from the other processor.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Lanes {
    few: [Known; FEW],
    /// How many of `few` are taken; [`TABLED`] if all lanes are in the table.
    known: u16,
    serial: u16,
    /// The first place that is free, and leads to the next.
    free: u32,
    len: u32,
    /// The first place is the lone lane's.
    slots: Vec<Slot>,
    /// How many slots are taken, over all lanes but the lone one.
    pub(super) taken: u64,
    table: Table,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    hash: u32,
    index: u32,
}

const TABLED: u16 = u16::MAX;

/// A lane with what a gate keeps beside it: one cache line, for a check over many keys costs what it has to fetch. A place that
/// is free has one too, with nothing in it: a lane that comes has little to write.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) lane: Lane,
    pub(crate) used_at: Tick,
    pub(crate) row: Row,
    /// The key's; in a free place, where the next one is.
    hash: u32,
    /// Tells a lane from an earlier one in the same place, in the due lists; a mix-up only means one look too many.
    pub(crate) serial: u16,
    /// Whether a moment is set at which the rate lets the head of the row start.
    pub(crate) is_timed: bool,
    /// Whether there is a lane here, it stands in the list of idle ones, limits of its own are pinned here.
    marks: u8,
}

const TAKEN: u8 = 1;
const LISTED: u8 = 2;
const PINNED: u8 = 4;

impl Slot {
    fn free(next: u32) -> Self {
        Slot {
            key: Key::EMPTY,
            lane: Lane::default(),
            used_at: Tick::ZERO,
            row: Row::EMPTY,
            hash: next,
            serial: 0,
            is_timed: false,
            marks: 0,
        }
    }

    /// Becomes a free place, where it is: to move one there would be to write all of it.
    #[inline]
    fn clear(&mut self, next: u32) {
        self.key.set("");
        self.lane = Lane::default();
        self.used_at = Tick::ZERO;
        self.row = Row::EMPTY;
        self.hash = next;
        self.is_timed = false;
        self.marks = 0;
    }

    #[inline]
    fn is_taken(&self) -> bool {
        self.marks & TAKEN != 0
    }

    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        self.marks & LISTED != 0
    }

    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.marks & PINNED != 0
    }

    pub(crate) fn set_listed(&mut self, is_listed: bool) {
        self.marks = self.marks & !LISTED | if is_listed { LISTED } else { 0 };
    }

    pub(crate) fn set_pinned(&mut self, is_pinned: bool) {
        self.marks = self.marks & !PINNED | if is_pinned { PINNED } else { 0 };
    }
}

impl Lanes {
    pub(crate) const fn new() -> Self {
        Lanes {
            few: [Known { hash: 0, index: 0 }; FEW],
            known: 0,
            serial: 0,
            free: NONE,
            len: 0,
            slots: Vec::new(),
            taken: 0,
            table: Table::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The lone lane takes its place among the others.
    #[inline(never)]
    pub(super) fn move_in(&mut self, key: Key, hash: u32, in_use: u32) {
        let slot = self.take_first(hash);
        slot.key = key;
        slot.lane = Lane::with_counts(in_use, RateState::default());
        self.taken += u64::from(in_use);
        self.know(hash, lone::PLACE);
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        // At nearly every desk at nearly every moment.
        if self.known == 0 { None } else { self.find_among(hash, key) }
    }

    #[inline(never)]
    fn find_among(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let is_it = |index: u32| self[index].key.as_bytes() == key;
        match self.few.get(..usize::from(self.known)) {
            Some(few) => {
                few.iter().find(|known| known.hash == hash && is_it(known.index)).map(|known| known.index)
            }
            None => self.table.find(hash, is_it),
        }
    }

    /// Puts in an idle lane.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, key: &Name<'_>) -> u32 {
        let (index, slot) = self.take(hash);
        key.write_to(&mut slot.key);
        self.know(hash, index);
        index
    }

    #[inline]
    fn know(&mut self, hash: u32, index: u32) {
        match self.few.get_mut(usize::from(self.known)) {
            Some(place) => {
                *place = Known { hash, index };
                self.known += 1;
            }
            None => self.insert_tabled(hash, index),
        }
    }

    #[inline(never)]
    fn insert_tabled(&mut self, hash: u32, index: u32) {
        if self.known != TABLED {
            self.known = TABLED;
            for known in self.few {
                self.table.insert(known.hash, known.index);
            }
        }
        self.table.insert(hash, index);
    }

    /// Puts in a lane that no key leads to: the one lane of a gate without keys.
    pub(crate) fn insert_unlisted(&mut self) {
        self.take_first(0);
    }

    /// Takes a place.
    #[inline]
    fn take(&mut self, hash: u32) -> (u32, &mut Slot) {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        self.free = self.slots[index as usize].hash;
        (index, self.take_at(index, hash))
    }

    /// Takes the place that is the lone lane's.
    fn take_first(&mut self, hash: u32) -> &mut Slot {
        self.have_first();
        self.take_at(lone::PLACE, hash)
    }

    #[inline]
    fn take_at(&mut self, index: u32, hash: u32) -> &mut Slot {
        self.len += 1;
        self.serial = self.serial.wrapping_add(1);
        let slot = &mut self.slots[index as usize];
        slot.serial = self.serial;
        slot.hash = hash;
        slot.marks = TAKEN;
        slot
    }

    fn have_first(&mut self) {
        if self.slots.is_empty() {
            self.slots.reserve_exact(KEEP);
            self.slots.push(Slot::free(NONE));
        }
    }

    /// One more place, which is free.
    #[inline(never)]
    fn grow(&mut self) {
        self.have_first();
        let index = self.slots.len();
        if index == self.slots.capacity() {
            self.slots.reserve_exact((index / SHARE).max(KEEP));
        }
        self.slots.push(Slot::free(self.free));
        self.free = u32::try_from(index).expect("there are far fewer lanes than that");
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        // The only one, at nearly every desk at nearly every moment.
        if self.known == 1 {
            self.known = 0;
        } else {
            self.remove_among(index);
        }
        if index == lone::PLACE {
            self.slots[0].clear(NONE);
        } else {
            self.slots[index as usize].clear(self.free);
            self.free = index;
        }
        self.len -= 1;
        if self.len == 0 && self.slots.capacity() > KEEP {
            self.slots = Vec::new();
            self.free = NONE;
        }
    }

    #[inline(never)]
    fn remove_among(&mut self, index: u32) {
        if let Some(few) = self.few.get(..usize::from(self.known)) {
            if let Some(at) = few.iter().position(|known| known.index == index) {
                self.known -= 1;
                self.few[at] = self.few[usize::from(self.known)];
            }
            return;
        }
        self.table.remove(self[index].hash, index);
        if self.table.len() < FEW {
            self.know_few();
        }
    }

    /// Not before there is room for one more: one lane that comes and goes must not move the others each time.
    fn know_few(&mut self) {
        self.known = 0;
        for (place, (hash, index)) in self.few.iter_mut().zip(self.table.iter()) {
            *place = Known { hash, index };
            self.known += 1;
        }
        self.table.clear();
    }

    /// The lane at `index`, if it is still the one of that serial.
    pub(crate) fn same(&mut self, index: u32, serial: u16) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize).filter(|slot| slot.is_taken() && slot.serial == serial)
    }

    /// Whether there is a lane at `index`. Where many are looked at, looking after one may have made another leave.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.slots.get(index as usize).is_some_and(Slot::is_taken)
    }

    pub(crate) fn indices(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|&index| self.has(index)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.is_taken())
    }
}

impl std::ops::Index<u32> for Lanes {
    type Output = Slot;

    #[inline]
    fn index(&self, index: u32) -> &Slot {
        let slot = &self.slots[index as usize];
        debug_assert!(slot.is_taken(), "there is no lane at {index}");
        slot
    }
}

impl std::ops::IndexMut<u32> for Lanes {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.is_taken(), "there is no lane at {index}");
        slot
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn g7_a_lane_is_found_by_its_key_whether_there_are_few_or_many() {
        // Seen to fail: with `know_few` not clearing the table, lanes that are gone are found again.
        let (mut lanes, mut known) = (Lanes::new(), HashMap::new());
        let mut state = 1_u32;
        for step in 0..20_000_u32 {
            // It need not be a good generator. A few keys and many in turn, some of them with the same hash.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let most = if step / 500 % 2 == 0 { 5 } else { 300 };
            let (number, key) = (state >> 16, format!("key-{}", (state >> 16) % most));
            let hash = number % most / 2;
            assert_eq!(
                lanes.find(hash, key.as_bytes()),
                known.get(&key).map(|&(index, _)| index),
                "step {step}"
            );
            match known.remove(&key) {
                Some((index, _)) => lanes.remove(index),
                None => {
                    let index = lanes.insert(hash, &Name::Text(&key));
                    known.insert(key, (index, hash));
                }
            }
            assert_eq!(lanes.len(), known.len());
            // Down to none now and then, so that both ways of finding them begin anew.
            if step % 500 == 499 {
                for (key, (index, hash)) in known.drain() {
                    assert_eq!(lanes.find(hash, key.as_bytes()), Some(index), "step {step}");
                    lanes.remove(index);
                }
            }
        }
    }
}
