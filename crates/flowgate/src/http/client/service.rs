//! The service around a client.
//!
//! Owns readiness: it is always ready and reserves nothing, for a caller that reserves and then waits in line
//! would keep from others what it does not use. The wrapped service is asked whether it is ready when a
//! request has its turn.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{
    body::Body,
    call,
    error::{BoxError, Error},
    future::ResponseFuture,
    layer::Shared,
    replay::Replay,
};

/// A client that respects limits; made by a [`ClientLayer`](super::ClientLayer). Clones are the same client.
#[derive(Clone)]
pub struct Client<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Client<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Client { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Client<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Replay + Send + 'static,
    R: http_body::Body + Unpin + Send + 'static,
    R::Error: Send,
{
    type Response = Response<Body<R>>;
    type Error = Error;
    type Future = ResponseFuture<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<R> {
        ResponseFuture::new(call::run(Arc::clone(&self.shared), self.inner.clone(), request))
    }
}

impl<S: fmt::Debug> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("inner", &self.inner).finish_non_exhaustive()
    }
}
