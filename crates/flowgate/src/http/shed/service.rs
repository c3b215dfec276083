//! The service: turns away the share that is to be shed, before anything else is spent on it.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::layer::Shared;
use crate::http::{body::GatedBody, future::ResponseFuture};

/// A service behind a [`LoadShed`](super::LoadShed).
#[derive(Clone)]
pub struct Shedding<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Shedding<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Shedding { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Shedding<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<GatedBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        self.shared.watch();
        let (mut parts, body) = request.into_parts();
        let is_counted = match self.shared.front.key(&parts) {
            Ok(key) => key.is_some() && self.shared.front.counts(&mut parts.extensions),
            Err(response) => return ResponseFuture::refused(*response),
        };
        if is_counted && self.shared.share.takes() {
            return ResponseFuture::refused(self.shared.front.answer.shed(&parts.headers));
        }
        ResponseFuture::free(&mut self.inner, Request::from_parts(parts, body), None)
    }
}

impl<S: fmt::Debug> fmt::Debug for Shedding<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedding").field("inner", &self.inner).finish_non_exhaustive()
    }
}
