//! Places with numbers: constant-time insert and remove, no allocation once warm.
//!
//! Owns the memory of waiters, and gives it back when the last one leaves. It never moves an entry.

/// "No entry" in links between entries.
pub(crate) const NONE: u32 = u32::MAX;
/// `KEEP` entries may stay allocated when it is empty, so that one who comes and goes does not allocate each time. One
/// that is full grows by its `SHARE`th part.
///
/// In this order in memory: what every insert and remove writes comes first, and can share a cache line with what stands
/// before it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slab<T, const KEEP: usize, const SHARE: usize> {
    free: u32,
    len: u32,
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
enum Entry<T> {
    Used(T),
    Free { next: u32 },
}

impl<T, const KEEP: usize, const SHARE: usize> Slab<T, KEEP, SHARE> {
    /// So much at its begin is written by every insert and remove.
    #[cfg(all(target_pointer_width = "64", not(loom)))]
    pub(super) const HOT: usize = std::mem::offset_of!(Self, entries);

    pub(crate) const fn new() -> Self {
        Slab { free: NONE, len: 0, entries: Vec::new() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let index = self.free;
        match self.entries.get_mut(index as usize) {
            Some(entry) => {
                if let Entry::Free { next } = *entry {
                    self.free = next;
                }
                *entry = Entry::Used(value);
                index
            }
            None => self.grow(value),
        }
    }

    #[inline(never)]
    fn grow(&mut self, value: T) -> u32 {
        let index = self.entries.len();
        if index == self.entries.capacity() {
            self.entries.reserve_exact((index / SHARE).max(KEEP.min(8)));
        }
        self.entries.push(Entry::Used(value));
        u32::try_from(index).ok().filter(|&index| index != NONE).expect("fewer than four billion entries")
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let free = Entry::Free { next: self.free };
        let Entry::Used(value) = std::mem::replace(&mut self.entries[index as usize], free) else {
            unreachable!("entry {index} was removed twice")
        };
        self.freed(index);
        value
    }

    #[inline]
    fn freed(&mut self, index: u32) {
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.entries.capacity() > KEEP {
            self.entries = Vec::new();
            self.free = NONE;
        }
    }

    #[inline]
    pub(crate) fn find(&self, index: u32) -> Option<&T> {
        match self.entries.get(index as usize) {
            Some(Entry::Used(value)) => Some(value),
            _ => None,
        }
    }
}

impl<T, const KEEP: usize, const SHARE: usize> std::ops::Index<u32> for Slab<T, KEEP, SHARE> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        match &self.entries[index as usize] {
            Entry::Used(value) => value,
            Entry::Free { .. } => unreachable!("entry {index} is not in use"),
        }
    }
}

impl<T, const KEEP: usize, const SHARE: usize> std::ops::IndexMut<u32> for Slab<T, KEEP, SHARE> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        match &mut self.entries[index as usize] {
            Entry::Used(value) => value,
            Entry::Free { .. } => unreachable!("entry {index} is not in use"),
        }
    }
}
