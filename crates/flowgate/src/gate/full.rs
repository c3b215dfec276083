//! A pass that carries more than a slot: a listener to tell of its end, the moment it began, or a weight
//! above one.
//!
//! Owns one small allocation for each such pass, kept for a later pass of the thread: where somebody listens,
//! making and freeing it each time would be an eighth of an entry.

use std::{
    cell::{Cell, RefCell},
    mem,
    sync::Arc,
    time::Duration,
};

use flowgate_core::{Key, Outcome, Tick, What};

use super::{
    desk::Desk,
    meta::Meta,
    name::Name,
    pass::{Returning, Slot},
};

pub(super) struct Full {
    slot: Slot,
    /// `None` where nobody was told, and while nobody uses it.
    meta: Option<Arc<Meta>>,
    /// Means nothing where the gate has no keys.
    key: Key,
    is_keyed: bool,
    is_timed: bool,
}

/// How many a thread keeps to use again.
const SPARES: usize = 64;

/// The last one put away at hand, the others in a list: passes that come and go one by one never touch that.
#[derive(Default)]
struct Spares {
    last: Cell<Option<Box<Full>>>,
    #[expect(clippy::vec_box, reason = "what is kept are the allocations")]
    more: RefCell<Vec<Box<Full>>>,
}

thread_local! {
    static SPARES_HERE: Spares = const { Spares { last: Cell::new(None), more: RefCell::new(Vec::new()) } };
}

impl Spares {
    #[inline]
    fn take(&self) -> Option<Box<Full>> {
        self.last.take().or_else(|| self.more.borrow_mut().pop())
    }

    #[inline]
    fn put(&self, full: Box<Full>) {
        if let Some(before) = self.last.replace(Some(full)) {
            let mut more = self.more.borrow_mut();
            if more.len() < SPARES {
                more.push(before);
            }
        }
    }
}

impl Full {
    /// Of a pass that nobody was told of yet. Field by field, in registers: see [`pass`](super::pass).
    #[inline(never)]
    pub(super) fn new(desk: &'static Desk, lane: u32, weight: u32, started: Tick) -> Box<Self> {
        let slot = Slot { desk, lane, weight, started };
        match SPARES_HERE.try_with(Spares::take) {
            Ok(Some(mut full)) => {
                full.slot = slot;
                full
            }
            _ => Box::new(Full { slot, meta: None, key: Key::EMPTY, is_keyed: false, is_timed: false }),
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    #[inline]
    fn key(&self) -> Option<&Key> {
        self.is_keyed.then_some(&self.key)
    }

    /// Tells that a pass went out.
    #[inline(never)]
    pub(super) fn tell_acquired(
        mut self: Box<Self>,
        meta: &Arc<Meta>,
        key: Option<&Name<'_>>,
        waited: Duration,
        in_use: u32,
    ) -> Box<Self> {
        let slot = Returning(self.slot, Outcome::Ignored);
        if let Some(key) = key {
            key.write_to(&mut self.key);
        }
        self.is_keyed = key.is_some();
        self.is_timed = meta.bus.is_timed();
        meta.tell(self.key(), What::Acquired { waited, in_use });
        self.meta = Some(Arc::clone(meta));
        mem::forget(slot);
        self
    }

    /// Tells that it came back, if anybody was told that it went out.
    #[inline]
    pub(super) fn tell_released(mut self: Box<Self>) {
        if let Some(meta) = self.meta.take() {
            let started = self.slot.started;
            // One that went out before anybody wanted times has no start to count from.
            let is_timed = self.is_timed && started != Tick::ZERO;
            let held = is_timed.then(|| meta.time.now().since(started));
            meta.tell(self.key(), What::Released { held });
        }
        self.key.set("");
        // While the thread ends there is nowhere to keep it; then it is freed.
        let _ = SPARES_HERE.try_with(|spares| spares.put(self));
    }
}
