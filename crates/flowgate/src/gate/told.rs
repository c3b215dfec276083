//! What a pass that was announced needs to tell of its end.
//!
//! Owns one small allocation per announced pass, kept for a later pass of the thread: where somebody listens, making and freeing
//! it each time would be an eighth of an entry.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Duration,
};

use flowgate_core::{Key, Tick, What};

use super::{meta::Meta, name::Name};

pub(super) struct Told {
    /// `None` only while nobody uses it.
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
    last: Cell<Option<Box<Told>>>,
    #[expect(clippy::vec_box, reason = "what is kept are the allocations")]
    more: RefCell<Vec<Box<Told>>>,
}

thread_local! {
    static SPARES_HERE: Spares = const { Spares { last: Cell::new(None), more: RefCell::new(Vec::new()) } };
}

impl Spares {
    #[inline]
    fn take(&self) -> Option<Box<Told>> {
        self.last.take().or_else(|| self.more.borrow_mut().pop())
    }

    #[inline]
    fn put(&self, told: Box<Told>) {
        if let Some(before) = self.last.replace(Some(told)) {
            let mut more = self.more.borrow_mut();
            if more.len() < SPARES {
                more.push(before);
            }
        }
    }
}

impl Told {
    fn new() -> Box<Self> {
        Box::new(Told { meta: None, key: Key::EMPTY, is_keyed: false, is_timed: false })
    }

    #[inline]
    fn key(&self) -> Option<&Key> {
        self.is_keyed.then_some(&self.key)
    }

    /// Tells that a pass went out.
    #[inline]
    pub(super) fn tell_acquired(
        meta: &Arc<Meta>,
        key: Option<&Name<'_>>,
        waited: Duration,
        in_use: u32,
    ) -> Box<Told> {
        let mut told = SPARES_HERE.try_with(Spares::take).ok().flatten().unwrap_or_else(Told::new);
        if let Some(key) = key {
            key.write_to(&mut told.key);
        }
        told.is_keyed = key.is_some();
        told.is_timed = meta.bus.is_timed();
        meta.tell(told.key(), What::Acquired { waited, in_use });
        told.meta = Some(Arc::clone(meta));
        told
    }

    #[inline(never)]
    pub(super) fn tell_released(mut told: Box<Told>, started: Tick) {
        if let Some(meta) = told.meta.take() {
            // One that went out before anybody wanted times has no start to count from.
            let is_timed = told.is_timed && started != Tick::ZERO;
            let held = is_timed.then(|| meta.time.now().since(started));
            meta.tell(told.key(), What::Released { held });
        }
        told.key.set("");
        // While the thread ends there is nowhere to keep it; then it is freed.
        let _ = SPARES_HERE.try_with(|spares| spares.put(told));
    }
}
