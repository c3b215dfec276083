//! The service: takes a slot in `call`, and never in `poll_ready`.
//!
//! A slot reserved in `poll_ready` would be held by a service that is ready and never called: behind a buffer
//! that starves everybody.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::layer::Shared;
use crate::gate::Begun;
use crate::http::{body::GatedBody, future::ResponseFuture};

/// A service behind a [`ConcurrencyLimit`](super::ConcurrencyLimit).
#[derive(Clone)]
pub struct Concurrency<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Concurrency<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Concurrency { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Concurrency<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<GatedBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let front = &self.shared.front;
        let key = match front.plain_key(&request) {
            Some(key) => Some(key),
            None => {
                let (parts, body) = request.into_parts();
                let key = front.key(&parts);
                request = Request::from_parts(parts, body);
                match key {
                    Ok(key) => key,
                    Err(response) => return ResponseFuture::refused(*response),
                }
            }
        };
        let Some(key) = key.filter(|_| front.counts(request.extensions_mut())) else {
            return ResponseFuture::free(&mut self.inner, request, None);
        };
        // Asked for right here, so that the line is in the order of the calls; who has to wait leaves its waker later.
        match self.shared.enter(&key) {
            Begun::Done(Ok(pass)) => {
                ResponseFuture::admitted(&mut self.inner, request, self.shared.terms, pass)
            }
            Begun::Done(Err(refusal)) => {
                let (parts, _) = request.into_parts();
                ResponseFuture::refused(self.shared.refuse(&key, &refusal, &parts))
            }
            Begun::Waiting(enter) => {
                // The one that was found ready is the one to call later; a clone takes its place.
                let next = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, next);
                let layer = Arc::clone(&self.shared);
                ResponseFuture::waiting(enter, key, ready, request, layer)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Concurrency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency").field("inner", &self.inner).field("shared", &self.shared).finish()
    }
}
