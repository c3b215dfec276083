//! What it takes to wait.
//!
//! Owns what an entrant that may have to wait brings along: the time, a waker, a seat. None of it is made
//! under a desk's lock where waiting is likely, for a waker is user code.

use std::{cell::Cell, sync::Arc, task::Waker};

use flowgate_core::Tick;

use super::{
    desk::Desk,
    enter::Stage,
    seat::{self, Seat},
    state::Place,
};

/// One who would wait: what it needs for that, made ready before the lock is taken where waiting is likely.
pub(crate) struct Wait<'a> {
    waker: &'a Waker,
    ready: Cell<Option<Ready>>,
    /// Where it is written down that it waits: there, so that what it is told otherwise need not be looked at on its way out.
    stage: Cell<Option<&'a mut Stage>>,
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
    pub(super) fn new(waker: &'a Waker, stage: &'a mut Stage) -> Self {
        Wait { waker, ready: Cell::new(None), stage: Cell::new(Some(stage)) }
    }

    #[inline]
    pub(crate) fn make_ready(&self, now: Tick) -> Ready {
        Ready::new(now, self.waker)
    }

    /// Keeps what was made ready.
    pub(crate) fn keep(&self, ready: Ready) {
        self.ready.set(Some(ready));
    }

    /// What was made ready, or is made so now.
    pub(crate) fn take(&self, now: impl FnOnce() -> Tick) -> Ready {
        self.ready.take().unwrap_or_else(|| self.make_ready(now()))
    }

    /// It stands in line.
    #[inline]
    pub(crate) fn stand(&self, desk: &'static Desk, place: Place) {
        if let Some(stage) = self.stage.take() {
            *stage = Stage::Waiting(desk, place);
        }
    }
}
