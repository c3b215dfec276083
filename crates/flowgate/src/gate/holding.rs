//! What the work being polled right now holds.
//!
//! Owns a list per thread, filled for as long as a [`Scoped`](super::Scoped) future is being polled: so an entry asked for
//! inside knows which passes its own work holds. It costs nothing to those who never have to wait.

use std::cell::RefCell;

use flowgate_core::Spot;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) desk: usize,
    pub(crate) lane: u32,
    pub(crate) weight: u32,
    pub(crate) spot: Spot,
}

thread_local! {
    static CHAIN: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// The pass is held by what is polled until the guard is dropped.
pub(crate) struct Guard(());

pub(crate) fn hold(held: Held) -> Guard {
    with(|chain| chain.push(held));
    Guard(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        with(Vec::pop);
    }
}

/// Whether the work being polled holds anything at all.
pub(crate) fn is_any() -> bool {
    with(|chain| !chain.is_empty()) == Some(true)
}

/// How much of this lane the work being polled holds, and where it took it last.
pub(crate) fn held(desk: usize, lane: u32) -> Option<(u32, Spot)> {
    with(|chain| {
        let of_lane = chain.iter().filter(|held| held.desk == desk && held.lane == lane);
        of_lane.fold(None, |sum, held| Some((sum.map_or(0, |(weight, _)| weight) + held.weight, held.spot)))
    })?
}

/// `None` while the thread ends: what is dropped then holds nothing that could wait.
fn with<T>(with: impl FnOnce(&mut Vec<Held>) -> T) -> Option<T> {
    CHAIN.try_with(|chain| with(&mut chain.borrow_mut())).ok()
}
