//! The lanes of one desk: found by key, kept only while they mean something.
//!
//! Owns the map from keys to lanes. A lane is put in on its first entry and taken out when it is idle and its rate has
//! rested, so an idle key costs nothing. It never decides who starts.

use hashbrown::HashTable;

use flowgate_core::{Key, Lane, Tick};

use super::{line::Row, slab::Slab};

/// Below this a table is not worth shrinking.
const SMALL: usize = 64;

#[derive(Debug)]
pub(crate) struct Lanes {
    slots: Slab<Slot>,
    table: HashTable<u32>,
    serial: u16,
}

/// A lane with what a gate keeps beside it: one cache line, for a check over many keys costs what it has to fetch.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) lane: Lane,
    pub(crate) used_at: Tick,
    pub(crate) row: Row,
    hash: u32,
    /// Tells a lane from an earlier one in the same place, in the due lists; a mix-up only means one look too many.
    pub(crate) serial: u16,
    /// Whether a moment is set at which the rate lets the head of the row start.
    pub(crate) is_timed: bool,
    /// Whether it stands in the list of idle lanes, and whether limits of its own are pinned here.
    listed: u8,
}

const LISTED: u8 = 1;
const PINNED: u8 = 2;

impl Slot {
    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        self.listed & LISTED != 0
    }

    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.listed & PINNED != 0
    }

    pub(crate) fn set_listed(&mut self, is_listed: bool) {
        self.listed = self.listed & !LISTED | if is_listed { LISTED } else { 0 };
    }

    pub(crate) fn set_pinned(&mut self, is_pinned: bool) {
        self.listed = self.listed & !PINNED | if is_pinned { PINNED } else { 0 };
    }
}

/// What the table goes by. Half of a hash is kept, and made whole by repeating it: the table looks at both ends.
#[inline]
fn whole(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Lanes {
    pub(crate) const fn new() -> Self {
        Lanes { slots: Slab::new(), table: HashTable::new(), serial: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, key: &str) -> Option<u32> {
        self.table.find(whole(hash), |&index| self.slots[index].key.as_bytes() == key.as_bytes()).copied()
    }

    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, key: Key, lane: Lane) -> u32 {
        let index = self.insert_unlisted(hash, key, lane);
        let slots = &self.slots;
        self.table.insert_unique(whole(hash), index, |&index| whole(slots[index].hash));
        index
    }

    /// Puts in a lane that no key leads to: the one lane of a gate without keys.
    #[inline]
    pub(crate) fn insert_unlisted(&mut self, hash: u32, key: Key, lane: Lane) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        let (serial, row, used_at) = (self.serial, Row::EMPTY, Tick::ZERO);
        self.slots.insert(Slot { key, lane, used_at, row, hash, serial, is_timed: false, listed: 0 })
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        let hash = self.slots[index].hash;
        if let Ok(entry) = self.table.find_entry(whole(hash), |&other| other == index) {
            entry.remove();
        }
        self.slots.discard(index);
        self.shrink();
    }

    #[inline]
    fn shrink(&mut self) {
        let capacity = self.table.capacity();
        if capacity > SMALL && self.table.len() < capacity / 8 {
            let slots = &self.slots;
            self.table.shrink_to(self.table.len() * 2, |&index| whole(slots[index].hash));
        }
    }

    /// The lane at `index`, if it is still the one of that serial.
    pub(crate) fn same(&mut self, index: u32, serial: u16) -> Option<&mut Slot> {
        self.slots.find(index).is_some_and(|slot| slot.serial == serial).then(|| &mut self.slots[index])
    }

    pub(crate) fn indices(&self) -> Vec<u32> {
        self.slots.indices()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }
}

impl std::ops::Index<u32> for Lanes {
    type Output = Slot;

    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index]
    }
}

impl std::ops::IndexMut<u32> for Lanes {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index]
    }
}
