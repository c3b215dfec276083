//! Waiting first.
//!
//! Owns the step that waits before another. While it waits it holds nothing that stands inside it.

use std::time::Duration;

use super::stack::Wrap;
use crate::route::{
    cx::Cx,
    event::{Scope, What},
    exchange::Exchange,
    step::{Outcome, Step},
};

/// A step that begins after a while.
#[derive(Debug)]
pub struct Delayed<S = ()> {
    pub(crate) span: Duration,
    pub(crate) scope: Scope,
    pub(crate) inner: S,
}

impl<B: Send + 'static, S: Step<B>> Step<B> for Delayed<S> {
    type Out = S::Out;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<S::Out> {
        let (span, scope) = (self.span, self.scope);
        cx.tell(|| What::DelayStarted { scope, span });
        cx.sleep_for(span).await;
        self.inner.run(exchange, cx).await
    }
}

impl<B: Send + 'static, T> Wrap<B, T> for Delayed {
    type Around<S: Step<B, Out = T>> = Delayed<S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Delayed<S> {
        Delayed { span: self.span, scope: self.scope, inner }
    }
}
