//! What is done when the lock is gone.
//!
//! Owns the wakers that a step at a desk has to wake or to drop: both run user code, which must find no lock
//! held.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Waker,
};

use super::seat::Seat;

/// Whom to wake, and what to drop, after the lock is gone. The first in front: nearly always it is all there is.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    first: Option<(Waker, Arc<Seat>)>,
    more: Vec<Waker>,
    /// One is enough: a step at the desk drops the waker of the entrant that takes it, if any.
    spent: Option<Waker>,
}

impl Wakes {
    pub(super) fn wake_later(&mut self, waker: Waker, seat: Arc<Seat>) {
        if self.first.is_none() {
            self.first = Some((waker, seat));
        } else {
            self.more.push(waker);
        }
    }

    pub(crate) fn wake_all_later(&mut self, wakers: &mut Vec<Waker>) {
        self.more.append(wakers);
    }

    pub(super) fn drop_later(&mut self, waker: Waker) {
        debug_assert!(self.spent.is_none(), "one step, one entrant");
        self.spent = Some(waker);
    }

    /// Whether nobody has to be woken before all others.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.first.is_none()
    }

    /// Whether there is nothing to do but to wake one, if that.
    #[inline]
    pub(crate) fn is_one_at_most(&self) -> bool {
        self.more.is_empty() && self.spent.is_none()
    }

    #[inline]
    pub(crate) fn wake_one(first: Option<(Waker, Arc<Seat>)>) {
        if let Some((waker, seat)) = first {
            // The seat first, so that who is woken finds it free to use again.
            drop(seat);
            wake(waker);
        }
    }

    #[inline]
    pub(crate) fn take_one(&mut self) -> Option<(Waker, Arc<Seat>)> {
        self.first.take()
    }

    pub(crate) fn wake(self) {
        Self::wake_one(self.first);
        self.more.into_iter().for_each(wake);
        self.spent.into_iter().for_each(discard);
    }
}

/// Wakes one. If its waker panics, the panic hook tells of it, and nobody else is to suffer: the others are woken too, and
/// whoever gave the slot back goes on.
pub(crate) fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Drops one, for whoever gives up its wait, perhaps because of a panic: a second one would end the process.
pub(crate) fn discard(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
}
