//! How many lanes a gate may have, over all its desks.
//!
//! Owns the allowance. Desks take it in blocks and give surplus back, so that adding a lane touches no word that other
//! desks write. What the pool, the desks and the lanes hold together is always `max_keys`.

use flowgate_core::Tick;

use super::desk::Desk;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

#[derive(Debug)]
pub(crate) struct Quota {
    pool: AtomicU32,
    block: u32,
    /// Held while room is moved from one desk to another.
    moving: Mutex<()>,
}

impl Quota {
    /// `max_keys` lanes over so many desks.
    pub(crate) fn new(max_keys: u32, desks: u32) -> Self {
        let block = (max_keys / desks / 8).clamp(1, 64);
        Quota { pool: AtomicU32::new(max_keys), block, moving: Mutex::new(()) }
    }

    /// Nobody else moves room until the guard is gone. Taken before any desk's own lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.moving)
    }

    /// Up to a block of the allowance that no desk has.
    pub(crate) fn take(&self) -> u32 {
        let taken = |pool: u32| pool.min(self.block);
        self.pool
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |pool| (pool > 0).then(|| pool - taken(pool)))
            .map_or(0, taken)
    }

    /// A desk gives back what it has beyond this.
    pub(crate) fn most_spare(&self) -> u32 {
        2 * self.block
    }

    /// Takes back a block of what a desk has too much of.
    pub(crate) fn trim(&self, spare: &mut u32) {
        if *spare > self.most_spare() {
            *spare -= self.block;
            self.pool.fetch_add(self.block, Ordering::AcqRel);
        }
    }

    /// Finds room for one more lane: in the pool, at a desk that has some to spare, or by forgetting the least recently
    /// used idle lane of the gate. Zero if all lanes are in use.
    pub(crate) fn find(&self, desks: &[&'static Desk]) -> u32 {
        let pooled = self.take();
        if pooled > 0 {
            return pooled;
        }
        for desk in desks.iter().filter(|desk| desk.spare() > 0) {
            let spare = desk.at(|state| std::mem::take(&mut state.spare));
            if spare > 0 {
                return spare;
            }
        }
        // What a desk shows may be older than the truth, never newer: at worst we look at a desk twice.
        for _ in 0..2 * desks.len() {
            let Some(oldest) = desks.iter().min_by_key(|desk| desk.oldest()) else { break };
            if oldest.oldest() == Tick::NEVER {
                break;
            }
            let next = desks.iter().map(|desk| desk.oldest()).filter(|&at| at != oldest.oldest()).min();
            let is_evicted = oldest.at(|state| {
                let is_first =
                    state.least_recently_used().is_some_and(|(at, _)| next.is_none_or(|next| at <= next));
                let is_evicted = is_first && state.evict();
                state.spare -= u32::from(is_evicted);
                is_evicted
            });
            if is_evicted {
                return 1;
            }
        }
        // Seen one after the other, room may be missed that went from a desk yet to be seen to one already seen, or from
        // there to the pool.
        let room = Desk::take_room(desks);
        if room > 0 { room } else { self.take() }
    }
}
