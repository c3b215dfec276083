//! An exchange on its way through a bound.
//!
//! Owns the future of a bounded step: in by each gate, from the outermost to the innermost, and then the work. Written out by
//! hand, because exchanges wait here by the million, and an `async fn` keeps its arguments twice. Nothing is kept but what the
//! next poll needs.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use flowgate_core::Spot;
use pin_project_lite::pin_project;

use super::passes::Passes;
use crate::{
    gate::{Begun, OwnedEnter, Pass, Stub},
    route::{
        cx::Cx,
        error::Error,
        exchange::Exchange,
        limiter::Limiter,
        step::{Halt, Outcome},
    },
};

pin_project! {
    /// Cancel safety: dropped, it leaves the line that it stands in; or it drops the work first and the passes then, the
    /// innermost first.
    #[project = Stage]
    pub(super) enum Bound<'a, B, N, F> {
        Entering { entry: Entry<'a, B, N> },
        // Fields drop in this order: a slot is never free while the work still owns anything.
        Inside { #[pin] work: F, passes: Passes, spot: Spot },
        Done,
    }
}

/// On its way in.
pub(super) struct Entry<'a, B, N> {
    /// The gates that are left.
    limiters: &'a [Limiter<B>],
    cx: Cx<'a>,
    exchange: Option<Exchange<B>>,
    /// Its place in the line of the first of them, if it waits there.
    waiting: Option<Box<OwnedEnter>>,
    passes: Passes,
    /// Begins the work.
    run: N,
}

impl<'a, B, N, F> Bound<'a, B, N, F>
where
    N: Fn(Exchange<B>, Cx<'a>) -> F,
{
    pub(super) fn entering(limiters: &'a [Limiter<B>], cx: Cx<'a>, exchange: Exchange<B>, run: N) -> Self {
        let (exchange, waiting, passes) = (Some(exchange), None, Passes::None);
        Bound::Entering { entry: Entry { limiters, cx, exchange, waiting, passes, run } }
    }

    /// A part of its caller, so that it is put together where it is to stay.
    #[inline(always)]
    pub(super) fn inside(slot: Stub, cx: Cx<'a>, exchange: Exchange<B>, run: &N) -> Self {
        // The work begins under its pass: a step may do something before it is first polled.
        let spot = cx.sent_at;
        let held = slot.hold(spot);
        let work = run(exchange, cx);
        drop(held);
        Bound::Inside { work, passes: Passes::One(slot.into_pass()), spot }
    }

    /// Through all gates, and on to the work. Apart, so that those who need not wait do not carry what this one needs.
    #[inline(never)]
    fn enter(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<(), Halt>> {
        let Stage::Entering { entry } = self.as_mut().project() else { return Poll::Ready(Ok(())) };
        if let Err(halt) = ready!(entry.poll(task)) {
            // They are given back before anybody hears of it.
            self.set(Bound::Done);
            return Poll::Ready(Err(halt));
        }
        let exchange = entry.exchange.take().expect("the work has not begun");
        let spot = entry.cx.sent_at;
        // As in `inside`. The passes stay where they are meanwhile, which is what tells them from others.
        let held = entry.passes.hold(spot);
        let work = (entry.run)(exchange, entry.cx);
        drop(held);
        let passes = std::mem::take(&mut entry.passes);
        self.set(Bound::Inside { work, passes, spot });
        Poll::Ready(Ok(()))
    }
}

impl<B, N> Entry<'_, B, N> {
    /// Through all gates, one after the other.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Halt>> {
        while let Some((limiter, rest)) = self.limiters.split_first() {
            let pass = ready!(self.poll_one(limiter, task))?;
            self.waiting = None;
            self.passes.add(pass);
            self.limiters = rest;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_one(&mut self, limiter: &Limiter<B>, task: &mut Context<'_>) -> Poll<Result<Pass, Error>> {
        let Entry { cx, exchange, waiting, passes, .. } = self;
        let spot = cx.sent_at;
        if let Some(waiting) = waiting {
            let _held = passes.hold(spot);
            return Pin::new(&mut **waiting).poll(task).map_err(Error::from);
        }
        let exchange = exchange.as_mut().expect("the work has not begun");
        let key = limiter.key_of(exchange, *cx)?;
        let held = passes.hold(spot);
        let begun = limiter.begin(key.as_ref(), *cx, task);
        drop(held);
        match begun {
            Begun::Done(answer) => Poll::Ready(answer.map_err(Error::from)),
            Begun::Waiting(entry) => {
                *waiting = Some(Box::new(entry));
                Poll::Pending
            }
        }
    }
}

impl<'a, B, T, N, F> Future for Bound<'a, B, N, F>
where
    N: Fn(Exchange<B>, Cx<'a>) -> F,
    F: Future<Output = Outcome<T>>,
{
    type Output = Outcome<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Outcome<T>> {
        if let Stage::Entering { .. } = self.as_mut().project() {
            ready!(self.as_mut().enter(task))?;
        }
        let Stage::Inside { work, passes, spot } = self.as_mut().project() else {
            panic!("an exchange was polled after it was done")
        };
        let _held = passes.hold(*spot);
        // The last thing done, so that the answer is written where it is wanted. Work and passes go when this is
        // dropped, as whoever awaits it does at once: `InTurn` before it begins the next step, a flight before it tells
        // that it has landed.
        work.poll(task)
    }
}
