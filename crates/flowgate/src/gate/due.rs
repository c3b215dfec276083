//! Moments at which a lane wants to be looked at.
//!
//! Owns a heap of (moment, lane). Entries of lanes that are gone stay until their moment comes or
//! [`Due::tidy`] is called; the code that takes an entry out checks that the lane is still the same one.

use std::{cmp::Reverse, collections::BinaryHeap};

use flowgate_core::Tick;

/// What may stay allocated when empty.
const KEEP: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Due {
    heap: BinaryHeap<Reverse<(Tick, u32, u16)>>,
}

impl Due {
    pub(crate) fn push(&mut self, at: Tick, lane: u32, serial: u16) {
        if self.heap.len() == self.heap.capacity() {
            self.heap.reserve_exact((self.heap.len() / 4).max(8));
        }
        self.heap.push(Reverse((at, lane, serial)));
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Keeps the earliest entry of each lane that is still there.
    pub(crate) fn tidy(&mut self, mut is_there: impl FnMut(u32, u16) -> bool) {
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        entries.sort_unstable_by_key(|&Reverse((at, lane, serial))| (lane, serial, at));
        entries.dedup_by_key(|&mut Reverse((_, lane, serial))| (lane, serial));
        entries.retain(|&Reverse((_, lane, serial))| is_there(lane, serial));
        entries.shrink_to(KEEP);
        self.heap = entries.into();
    }

    /// The earliest moment.
    pub(crate) fn first(&self) -> Option<(Tick, u32, u16)> {
        self.heap.peek().map(|&Reverse(entry)| entry)
    }

    pub(crate) fn pop(&mut self) {
        self.heap.pop();
        if self.heap.is_empty() && self.heap.capacity() > KEEP {
            self.heap = BinaryHeap::new();
        }
    }
}
