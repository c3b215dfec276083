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
    serial: u32,
}

/// A lane with what a gate keeps beside it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) lane: Lane,
    pub(crate) row: Row,
    /// The weight of this lane's passes held by work that waits in this lane's own row.
    pub(crate) stuck: u32,
    /// Tells a lane from an earlier one in the same place, in the due lists.
    pub(crate) serial: u32,
    pub(crate) used_at: Tick,
    hash: u64,
    /// Whether a moment is set at which the rate lets the head of the row start.
    pub(crate) is_timed: bool,
    /// Whether it stands in the list of idle lanes.
    pub(crate) is_listed: bool,
    /// Whether limits of its own are pinned here.
    pub(crate) is_pinned: bool,
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
    pub(crate) fn find(&self, hash: u64, key: &str) -> Option<u32> {
        self.table.find(hash, |&index| self.slots[index].key.as_bytes() == key.as_bytes()).copied()
    }

    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, key: Key, lane: Lane) -> u32 {
        let index = self.insert_unlisted(hash, key, lane);
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |&index| slots[index].hash);
        index
    }

    /// Puts in a lane that no key leads to: the one lane of a gate without keys.
    pub(crate) fn insert_unlisted(&mut self, hash: u64, key: Key, lane: Lane) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.slots.insert(Slot {
            key,
            lane,
            row: Row::EMPTY,
            stuck: 0,
            serial: self.serial,
            used_at: Tick::ZERO,
            hash,
            is_timed: false,
            is_listed: false,
            is_pinned: false,
        })
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        let hash = self.slots[index].hash;
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        self.slots.remove(index);
        self.shrink();
    }

    #[inline]
    fn shrink(&mut self) {
        let capacity = self.table.capacity();
        if capacity > SMALL && self.table.len() < capacity / 8 {
            let slots = &self.slots;
            self.table.shrink_to(self.table.len() * 2, |&index| slots[index].hash);
        }
    }

    /// The lane at `index`, if it is still the one of that serial.
    pub(crate) fn same(&mut self, index: u32, serial: u32) -> Option<&mut Slot> {
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
