//! What it takes to wait.
//!
//! Owns what one who may have to wait brings along: the time, a waker, a seat. None of it is made under a desk's lock where waiting
//! is likely, for a waker is code of others.

use std::{cell::Cell, sync::Arc, task::Waker};

use flowgate_core::Tick;

use super::seat::{self, Seat};

/// One who would wait: what it needs for that, made ready before the lock is taken where waiting is likely.
pub(crate) struct Wait<'a> {
    waker: &'a Waker,
    ready: Cell<Option<Ready>>,
}

/// What one who waits needs.
pub(crate) struct Ready {
    pub(crate) since: Tick,
    pub(crate) waker: Waker,
    pub(crate) seat: Arc<Seat>,
}

impl Ready {
    #[inline]
    pub(crate) fn new(now: Tick, waker: &Waker) -> Self {
        Ready { since: now, waker: waker.clone(), seat: seat::take() }
    }
}

impl<'a> Wait<'a> {
    pub(crate) fn new(waker: &'a Waker, ready: Option<Ready>) -> Self {
        Wait { waker, ready: Cell::new(ready) }
    }

    pub(crate) fn prepare(&self, now: Tick) {
        self.ready.set(Some(Ready::new(now, self.waker)));
    }

    /// What was made ready, or is made so now.
    pub(crate) fn take(&self, now: impl FnOnce() -> Tick) -> Ready {
        self.ready.take().unwrap_or_else(|| Ready::new(now(), self.waker))
    }
}
