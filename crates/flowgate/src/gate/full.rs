//! A pass that carries more than a slot: a listener to tell of its end, the moment it began, or a weight
//! above one.
//!
//! Owns one small allocation for each such pass, kept for a later pass of the thread: where somebody listens,
//! making and freeing it each time would be an eighth of an entry.

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::Arc,
};

use flowgate_core::{Key, Tick, What};

use super::{desk::Desk, meta::Meta, name::Name, pass::Slot, state::Admission};

pub(super) struct Full {
    slot: Slot,
    /// `None` where nobody was told, and while a thread keeps it.
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
    /// Of a pass that nobody is told of. Field by field, in registers: see [`pass`](super::pass).
    #[inline]
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

    /// Of a pass that goes out, which is told here. `full` is what another pass left at the desk, and knows whom to tell.
    #[inline]
    pub(super) fn told(
        full: Option<Box<Full>>,
        desk: &'static Desk,
        meta: &Arc<Meta>,
        key: Option<&Name<'_>>,
        admission: &Admission,
    ) -> Box<Self> {
        let Admission { lane, weight, in_use, started, waited } = *admission;
        let mut full = match full {
            Some(mut full) => {
                full.slot = Slot { desk, lane, weight, started };
                full
            }
            None => {
                let mut full = Full::new(desk, lane, weight, started);
                full.meta = Some(Arc::clone(meta));
                full
            }
        };
        if let Some(key) = key {
            key.write_to(&mut full.key);
        }
        full.is_keyed = key.is_some();
        full.is_timed = meta.bus.is_timed();
        meta.tell(full.key(), What::Acquired { waited, in_use });
        full
    }

    /// Tells that it came back, if anybody was told that it went out.
    #[inline]
    pub(super) fn tell_released(&mut self) {
        if let Some(meta) = &self.meta {
            // One that went out before anybody wanted times has no start to count from.
            let is_timed = self.is_timed && self.slot.started != Tick::ZERO;
            let held = is_timed.then(|| self.slot.held(&meta.time));
            meta.tell(self.key(), What::Released { held });
        }
        self.key.set("");
    }

    /// Whether the gate's next pass could carry it along.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.meta.is_some()
    }

    /// Puts it away for another pass of this thread, of whatever gate.
    #[inline(never)]
    pub(super) fn put_away(mut self: Box<Self>) {
        self.meta = None;
        // While the thread ends there is nowhere to keep it; then it is freed.
        let _ = SPARES_HERE.try_with(|spares| spares.put(self));
    }
}

impl fmt::Debug for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").finish_non_exhaustive()
    }
}
