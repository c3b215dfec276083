//! How long something may take.
//!
//! Owns the step that ends another in time. What it ends is dropped before anybody is told: it has left every line, and its
//! slots have come back with the work, never before.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use flowgate_core::{Code, OptionError};

use super::stack::Wrap;
use crate::route::{
    cx::Cx,
    error::Error,
    event::{Scope, What},
    exchange::Exchange,
    step::{Outcome, Step},
};

/// A step with a time limit.
#[derive(Debug)]
pub struct Timed<S = ()> {
    pub(crate) after: Duration,
    pub(crate) scope: Scope,
    pub(crate) inner: S,
}

pub(crate) fn check(after: Duration) -> Result<(), OptionError> {
    if after.is_zero() {
        return Err(OptionError::new("timeout", format_args!("{after:?}"), "a time above zero"));
    }
    Ok(())
}

impl<B: Send + 'static, S: Step<B>> Step<B> for Timed<S> {
    type Out = S::Out;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<S::Out> {
        let (after, scope) = (self.after, self.scope);
        if let Some(outcome) = within(cx, after, || self.inner.run(exchange, cx)).await {
            return outcome;
        }
        cx.tell(|| What::TimeoutExpired { scope, after });
        let message = format!("a {scope} of route `{}` took longer than {after:?}", cx.route());
        Err(Error::new(Code::TimedOut, message).into())
    }
}

/// What comes of the work, if it comes in time. Work that is ready and late at once is ready.
async fn within<F: Future>(cx: Cx<'_>, after: Duration, work: impl FnOnce() -> F) -> Option<F::Output> {
    let mut over = pin!(cx.sleep_for(after));
    // Only now: what a step does before it is first polled takes its time as well.
    let mut work = pin!(work());
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => over.as_mut().poll(context).map(|()| None),
    })
    .await
}

impl<B: Send + 'static, T> Wrap<B, T> for Timed {
    type Around<S: Step<B, Out = T>> = Timed<S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Timed<S> {
        Timed { after: self.after, scope: self.scope, inner }
    }
}
