//! The layer for a gate that a fleet of servers shares, its options and its service.
//!
//! Owns the question to the gate: a pass, in line if there is one. All else is as for one server.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flowgate_core::{Key, OptionError, Overflow, Refusal, Spot};
use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::layer::{ReleaseAt, Terms};
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

/// Limits how many requests are in flight over all servers of a fleet, as a plain [`Layer`] on a [shared
/// gate](crate::shared): for something that all of them use, such as a database, or for what one client may have
/// under way. To limit what one server can bear, use a [`ConcurrencyLimit`](super::ConcurrencyLimit).
///
/// A slot is taken before the request's body is read, and held until the response's body has ended or the client is
/// gone. The gate says who may wait, and for how long: `reject`, `queue` or `timeout`. A gate with none of them is an
/// error, for requests would wait in a line without end. While the store does not answer, requests get 503, or pass
/// uncounted, as the gate's `on_outage` says. A request whose pass is lost meanwhile goes on.
///
/// ```no_run
/// use flowgate::{
///     http::{Identity, Scope, SharedConcurrencyLimit},
///     shared::Gate,
/// };
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::builder("redis://cache").name("reports").max(2).reject().keyed().start().await?;
/// let limit = SharedConcurrencyLimit::builder(gate).scope(Scope::Client).identity(Identity::peer()).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedConcurrencyLimit {
    edge: Arc<Edge>,
}

/// What all services of one layer share.
#[derive(Debug)]
struct Edge {
    front: Front,
    terms: Terms,
    gate: KeyedGate,
}

/// Collects the options of a [`SharedConcurrencyLimit`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct SharedConcurrencyLimitBuilder {
    front: FrontBuilder,
    gate: KeyedGate,
    release: ReleaseAt,
}

impl SharedConcurrencyLimit {
    /// Starts building a layer: one budget for all, 503 with `Retry-After: 1`. The gate has `max` and the line, and
    /// keeps the keys.
    pub fn builder(gate: KeyedGate) -> SharedConcurrencyLimitBuilder {
        let front = FrontBuilder::new(Scope::Global, Answer::default());
        SharedConcurrencyLimitBuilder { front, gate, release: ReleaseAt::Body }
    }
}

impl SharedConcurrencyLimitBuilder {
    front_options!();

    /// Sets when a slot is given back. Default: at the end of the response's body.
    pub fn release_at(mut self, release: ReleaseAt) -> Self {
        self.release = release;
        self
    }

    /// Builds the layer, or returns the first option that is wrong.
    #[track_caller]
    pub fn build(self) -> Result<SharedConcurrencyLimit, OptionError> {
        if self.gate.limits().max().is_none() {
            let accepted = "a gate with a `max`, because this layer counts requests in flight";
            return Err(OptionError::new("gate", self.gate.limits(), accepted));
        }
        if let Overflow::Queue { max: None, timeout: None } = self.gate.limits().overflow() {
            let accepted = "a gate with `reject`, `queue` or `timeout`, so that no request waits forever";
            return Err(OptionError::new("gate", self.gate.limits(), accepted));
        }
        let (spot, front) = (Spot::here(), self.front.build()?);
        let terms = Terms::new(&front, self.release, spot);
        Ok(SharedConcurrencyLimit { edge: Arc::new(Edge { front, terms, gate: self.gate }) })
    }
}

impl<S> Layer<S> for SharedConcurrencyLimit {
    type Service = SharedConcurrency<S>;

    fn layer(&self, inner: S) -> SharedConcurrency<S> {
        SharedConcurrency { inner, edge: Arc::clone(&self.edge) }
    }
}

impl fleet::Edge for Edge {
    fn front(&self) -> &Front {
        &self.front
    }

    async fn ask(&self, key: &Key) -> Result<Admitted, Refusal> {
        let (pass, standing) = self.gate.admit(key.as_str()).await?;
        // Nobody knows how many are in flight beside one who is not counted.
        let limit = self.gate.limits().max().filter(|_| self.front.has_figures && !pass.is_uncounted());
        let figures = limit
            .map(|limit| Figures::Concurrency { limit, remaining: limit.saturating_sub(standing.in_use) });
        Ok(Admitted { pass: Some((pass, self.terms)), figures })
    }

    fn refuse(&self, key: &Key, refusal: &Refusal, request: &Parts) -> Response<Bytes> {
        self.terms.refuse(&self.front, key, refusal, request)
    }
}

/// A service behind a [`SharedConcurrencyLimit`].
#[derive(Clone)]
pub struct SharedConcurrency<S> {
    inner: S,
    edge: Arc<Edge>,
}

impl<S, B, R> Service<Request<B>> for SharedConcurrency<S>
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

impl<S: fmt::Debug> fmt::Debug for SharedConcurrency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedConcurrency").field("inner", &self.inner).field("edge", &self.edge).finish()
    }
}
