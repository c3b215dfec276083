//! Closing a gate and waiting for it to empty.
//!
//! Owns the future of a drain. The gate is closed whether it is awaited or not.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowgate_core::Tick;

use super::engine::Engine;

/// A gate that is closing. Await it to wait until nothing is in flight and nobody waits, or until the deadline. If a
/// gate is closed more than once, the earliest deadline applies to all.
///
/// Cancel safety: dropping it changes nothing; the gate stays closed.
#[must_use = "the gate is closed already; await this to know when it is empty"]
#[derive(Debug)]
pub struct Closing {
    engine: Arc<Engine>,
}

/// How closing a gate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// How many slots were still taken at the deadline. They stay taken until their passes are dropped.
    pub still_out: u64,
}

impl Drained {
    /// Whether all passes came back in time.
    pub fn is_clean(&self) -> bool {
        self.still_out == 0
    }
}

impl Closing {
    pub(crate) fn new(engine: Arc<Engine>, deadline: Tick) -> Self {
        engine.at_every_desk(|desk| desk.close(deadline));
        Closing { engine }
    }
}

impl Future for Closing {
    type Output = Drained;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Drained> {
        let now = self.engine.meta.time.now();
        let mut still_out = 0;
        let mut is_over = true;
        for desk in &self.engine.desks {
            desk.at(|state| {
                still_out += state.in_use();
                // The desk's deadline, which wakes: another close may have set a sooner one.
                if !state.is_drained() && state.closing.is_none_or(|deadline| now < deadline) {
                    is_over = false;
                    state.tell_when_drained(cx.waker());
                }
            });
        }
        if is_over { Poll::Ready(Drained { still_out }) } else { Poll::Pending }
    }
}
