//! What becomes of an error.
//!
//! Owns the step that asks the user's error handler. The handler gives another body instead, or an error: the
//! same or another.

use std::{fmt, future::Future, sync::Arc};

use super::stack::Wrap;
use crate::route::{
    cx::Cx,
    error::{BoxError, Error},
    event::{Scope, What},
    exchange::{Exchange, ExchangeId, Headers},
    step::{BoxFuture, Halt, Outcome, Step},
};

/// What an error handler gets.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// The route.
    pub route: String,
    /// The exchange.
    pub exchange: ExchangeId,
    /// The exchange's correlation id.
    pub correlation_id: String,
    /// The headers that it had before what failed.
    pub headers: Headers,
}

/// A handler that gives a `T` instead.
pub(crate) struct Handler<T>(Arc<dyn Fn(Failure) -> BoxFuture<'static, Result<T, Error>> + Send + Sync>);

impl<T: Send + 'static> Handler<T> {
    pub(crate) fn new<F, E>(handler: impl Fn(Failure) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Handler(Arc::new(move |failure| {
            let answer = handler(failure);
            Box::pin(async move { answer.await.map_err(Error::of) })
        }))
    }
}

/// A step whose errors are handled.
pub struct Caught<T, S = ()> {
    pub(crate) handler: Handler<T>,
    pub(crate) scope: Scope,
    pub(crate) inner: S,
}

impl<B: Send + 'static, T: Send + 'static, S: Step<B, Out = T>> Step<B> for Caught<T, S> {
    type Out = T;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<T> {
        let envelope = exchange.envelope();
        let error = match self.inner.run(exchange, cx).await {
            Err(Halt::Failed(error)) => error,
            settled => return settled,
        };
        let (scope, code) = (self.scope, error.code());
        cx.tell(|| What::ErrorCaught { scope, code });
        let failure = Failure {
            error,
            route: cx.route().to_owned(),
            exchange: envelope.id(),
            correlation_id: envelope.correlation_id().into_owned(),
            headers: envelope.headers.clone(),
        };
        let body = (self.handler.0)(failure).await?;
        cx.tell(|| What::ErrorRecovered { scope });
        Ok(envelope.with(body))
    }
}

impl<B: Send + 'static, T: Send + 'static> Wrap<B, T> for Caught<T> {
    type Around<S: Step<B, Out = T>> = Caught<T, S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Caught<T, S> {
        Caught { handler: self.handler, scope: self.scope, inner }
    }
}

impl<T, S> fmt::Debug for Caught<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caught").field("scope", &self.scope).finish_non_exhaustive()
    }
}
