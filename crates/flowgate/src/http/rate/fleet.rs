//! The layer for a gate that a fleet of servers shares, its options and its service.
//!
//! Owns the question to the gate: a start now, or none. Nobody waits in line. All else is as for one server.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flowgate_core::{Key, OptionError, Reason, Refusal};
use http::{Request, Response, StatusCode, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    http::{
        answer::Answer,
        body::GatedBody,
        figures::Figures,
        fleet::{self, Admitted},
        front::{Front, FrontBuilder, front_options},
        scope::Scope,
    },
    shared::KeyedGate,
};

/// Limits how many requests start per period over all servers of a fleet, as a plain [`Layer`] on a [shared
/// gate](crate::shared). Nobody waits: a request that comes too early gets 429 and is told when to come back. While
/// the store does not answer, requests get 503, or pass uncounted, as the gate's `on_outage` says.
///
/// ```no_run
/// use flowgate::{
///     http::{Identity, Scope, SharedRateLimit},
///     shared::Gate,
/// };
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::builder("redis://cache").name("api").rate(1_000, "1m").keyed().start().await?;
/// let limit = SharedRateLimit::builder(gate).scope(Scope::Client).identity(Identity::peer()).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedRateLimit {
    edge: Arc<Edge>,
}

/// What all services of one layer share.
#[derive(Debug)]
struct Edge {
    front: Front,
    gate: KeyedGate,
}

/// Collects the options of a [`SharedRateLimit`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct SharedRateLimitBuilder {
    front: FrontBuilder,
    gate: KeyedGate,
}

impl SharedRateLimit {
    /// Starts building a layer: one budget for all, 429. The gate has the rate, and keeps the keys.
    pub fn builder(gate: KeyedGate) -> SharedRateLimitBuilder {
        let answer = Answer::default().status(StatusCode::TOO_MANY_REQUESTS).unwrap_or_default();
        SharedRateLimitBuilder { front: FrontBuilder::new(Scope::Global, answer), gate }
    }
}

impl SharedRateLimitBuilder {
    front_options!();

    /// Builds the layer, or returns the first option that is wrong.
    pub fn build(self) -> Result<SharedRateLimit, OptionError> {
        if self.gate.limits().rate().is_none() {
            let accepted = "a gate with a `rate`, because this layer counts only starts";
            return Err(OptionError::new("gate", self.gate.limits(), accepted));
        }
        Ok(SharedRateLimit { edge: Arc::new(Edge { front: self.front.build()?, gate: self.gate }) })
    }
}

impl<S> Layer<S> for SharedRateLimit {
    type Service = SharedRated<S>;

    fn layer(&self, inner: S) -> SharedRated<S> {
        SharedRated { inner, edge: Arc::clone(&self.edge) }
    }
}

impl fleet::Edge for Edge {
    fn front(&self) -> &Front {
        &self.front
    }

    /// Spends one start; what is left, for the response's headers.
    async fn ask(&self, key: &Key) -> Result<Admitted, Refusal> {
        let left = self.gate.spend(key.as_str()).await?.rate.filter(|_| self.front.has_figures);
        let figures = self.gate.limits().rate().zip(left).map(|(rate, left)| Figures::of_rate(rate, left));
        Ok(Admitted { pass: None, figures })
    }

    /// With what is known of the rate.
    fn refuse(&self, key: &Key, refusal: &Refusal, request: &Parts) -> Response<Bytes> {
        let mut response = self.front.refuse(key, refusal, request);
        let spent = refusal.retry_after.filter(|_| self.front.has_figures && refusal.reason == Reason::Rate);
        if let Some((rate, resets_in)) = self.gate.limits().rate().zip(spent) {
            Figures::of_spent_rate(rate, resets_in).write(response.headers_mut());
        }
        response
    }
}

/// A service behind a [`SharedRateLimit`].
#[derive(Clone)]
pub struct SharedRated<S> {
    inner: S,
    edge: Arc<Edge>,
}

impl<S, B, R> Service<Request<B>> for SharedRated<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<GatedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        fleet::serve(&mut self.inner, &self.edge, request)
    }
}

impl<S: fmt::Debug> fmt::Debug for SharedRated<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRated").field("inner", &self.inner).field("edge", &self.edge).finish()
    }
}
