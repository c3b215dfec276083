//! What a pass that was announced needs to tell of its end.
//!
//! Owns one small allocation per announced pass, kept for a later pass of the thread: where somebody listens, making and freeing
//! it each time would be an eighth of an entry.

use std::{cell::RefCell, sync::Arc};

use flowgate_core::{Key, Tick, What};

use super::meta::Meta;

#[derive(Default)]
pub(super) struct Told {
    /// `None` only while nobody uses it.
    meta: Option<Arc<Meta>>,
    key: Option<Key>,
    is_timed: bool,
}

/// How many a thread keeps to use again.
const SPARES: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "what is kept are the allocations")]
    static SPARE: RefCell<Vec<Box<Told>>> = const { RefCell::new(Vec::new()) };
}

impl Told {
    pub(super) fn new(meta: &Arc<Meta>, key: Option<Key>) -> Box<Told> {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let mut told = spare.unwrap_or_default();
        *told = Told { meta: Some(Arc::clone(meta)), key, is_timed: meta.bus.is_timed() };
        told
    }

    #[inline(never)]
    pub(super) fn tell_released(mut told: Box<Told>, started: Tick) {
        if let Some(meta) = told.meta.take() {
            // One that went out before anybody wanted times has no start to count from.
            let is_timed = told.is_timed && started != Tick::ZERO;
            let held = is_timed.then(|| meta.time.now().since(started));
            meta.tell(told.key.as_ref(), What::Released { held });
        }
        told.key = None;
        // While the thread ends there is nowhere to keep it; then it is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(told);
            }
        });
    }
}
