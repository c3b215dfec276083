//! Passes: proof of admission.
//!
//! Owns the end of an entry: the slot lives exactly as long as its pass, whatever becomes of the work.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use flowgate_core::{Key, Outcome, Spot, Tick, What};
use pin_project_lite::pin_project;

use super::{
    desk::Desk,
    holding::{self, Held},
    meta::Meta,
};

/// Proof of admission. The slot is taken for exactly as long as this value lives: drop it, by whatever path, and the slot goes
/// to the head of the line.
///
/// A pass is `Send`, owned and borrows nothing: move it into a spawned task or into a response body.
#[must_use = "the slot is given back as soon as the pass is dropped"]
pub struct Pass {
    desk: &'static Desk,
    lane: u32,
    weight: u32,
    started: Tick,
    spot: Spot,
    outcome: Outcome,
    told: Option<Told>,
}

/// What a pass that was announced needs to tell of its end.
pub(crate) struct Told {
    pub(crate) meta: Arc<Meta>,
    pub(crate) key: Option<Key>,
    pub(crate) is_timed: bool,
}

impl Pass {
    #[inline]
    pub(crate) fn new(desk: &'static Desk, lane: u32, weight: u32, spot: Spot) -> Self {
        Pass { desk, lane, weight, started: Tick::ZERO, spot, outcome: Outcome::Done, told: None }
    }

    #[inline]
    pub(crate) fn started(mut self, at: Tick) -> Self {
        self.started = at;
        self
    }

    pub(crate) fn told(mut self, told: Told) -> Self {
        self.told = Some(told);
        self
    }

    /// How many slots it holds.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Gives the slot back and says how the work ended, for a gate whose `max` adapts. Merely dropping the pass says
    /// [`Outcome::Done`].
    pub fn settle(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Runs `work` under this pass: the slot is given back when the work has ended or is dropped, and an entry asked for
    /// inside it knows what the work holds already, so that it is refused (`re-entrant`) rather than left to wait for itself.
    pub fn scope<F: Future>(self, work: F) -> Scoped<F> {
        Scoped { pass: Some(self), work }
    }

    fn tell_released(&self, told: &Told) {
        let held = told.is_timed.then(|| told.meta.time.now().since(self.started));
        told.meta.tell(told.key.as_ref(), What::Released { held });
    }
}

impl Drop for Pass {
    #[inline]
    fn drop(&mut self) {
        // Told before the slot is free: who counts events never counts more than `max`.
        if let Some(told) = &self.told {
            self.tell_released(told);
        }
        if !self.desk.express.give(self.weight) {
            self.desk.leave(self.lane, self.weight, self.started, self.outcome);
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("weight", &self.weight)
            .field("given_at", &self.spot)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// Work under a pass; see [`Pass::scope`].
    ///
    /// Cancel safety: dropped, it drops the work first and gives the slot back then.
    #[must_use = "futures do nothing unless polled"]
    pub struct Scoped<F> {
        // Fields drop in this order: the slot is never free while the work still owns anything.
        #[pin]
        work: F,
        pass: Option<Pass>,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let me = self.project();
        let pass = me.pass.as_ref().expect("a future is not polled after it is done");
        let held = Held { desk: pass.desk.address(), lane: pass.lane, weight: pass.weight, spot: pass.spot };
        let _held = holding::hold(held);
        let output = ready!(me.work.poll(cx));
        me.pass.take();
        Poll::Ready(output)
    }
}
