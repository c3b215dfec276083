//! The passes that one piece of work holds.
//!
//! Owns their order: taken from the outermost to the innermost, given back the other way round, and known to the work that is
//! polled under them, so that it is refused rather than left to wait for itself.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use flowgate_core::Spot;
use pin_project_lite::pin_project;

use crate::gate::Pass;

/// Nearly always one.
#[derive(Debug, Default)]
pub(super) struct Passes {
    first: Option<Pass>,
    more: Vec<Pass>,
}

impl Passes {
    pub(super) fn add(&mut self, pass: Pass) {
        if self.first.is_none() {
            self.first = Some(pass);
        } else {
            self.more.push(pass);
        }
    }

    /// Runs work under these passes.
    pub(super) fn hold<F: Future>(&self, spot: Spot, work: F) -> Holding<'_, F> {
        Holding { passes: self, spot, work }
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        while self.more.pop().is_some() {}
    }
}

pin_project! {
    pub(super) struct Holding<'a, F> {
        passes: &'a Passes,
        spot: Spot,
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for Holding<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let me = self.project();
        let Some(first) = &me.passes.first else { return me.work.poll(cx) };
        first.holding(*me.spot, || under(&me.passes.more, *me.spot, || me.work.poll(cx)))
    }
}

fn under<R>(passes: &[Pass], spot: Spot, work: impl FnOnce() -> R) -> R {
    match passes.split_first() {
        Some((pass, rest)) => pass.holding(spot, || under_dyn(rest, spot, work)),
        None => work(),
    }
}

/// Apart, so that the recursion has an end for the compiler too.
fn under_dyn<R>(passes: &[Pass], spot: Spot, work: impl FnOnce() -> R) -> R {
    let mut work = Some(work);
    let mut output = None;
    step(passes, spot, &mut || output = work.take().map(|work| work()));
    output.expect("the work is done once, under all passes")
}

fn step(passes: &[Pass], spot: Spot, work: &mut dyn FnMut()) {
    match passes.split_first() {
        Some((pass, rest)) => pass.holding(spot, || step(rest, spot, work)),
        None => work(),
    }
}
