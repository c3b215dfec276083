//! Moments at which a lane wants to be looked at.
//!
//! Owns a heap of (moment, lane). A lane stands in it at most once; who takes an entry out checks that the lane is still
//! the same one.

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
