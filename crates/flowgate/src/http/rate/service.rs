//! The service: spends one start in `call`, or refuses. It never waits.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::layer::Shared;
use crate::http::{body::GatedBody, future::ResponseFuture};

/// A service behind a [`RateLimit`](super::RateLimit).
#[derive(Clone)]
pub struct Rated<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Rated<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Rated { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Rated<S>
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
        let (mut parts, body) = request.into_parts();
        let key = match self.shared.front.key(&parts) {
            Ok(key) => key.filter(|_| self.shared.front.counts(&mut parts.extensions)),
            Err(response) => return ResponseFuture::refused(*response),
        };
        let figures = match key.map(|key| self.shared.spend(&key).map_err(|refusal| (key, refusal))) {
            None => None,
            Some(Ok(figures)) => figures,
            Some(Err((key, refusal))) => {
                return ResponseFuture::refused(self.shared.refuse(&key, &refusal, &parts));
            }
        };
        ResponseFuture::free(&mut self.inner, Request::from_parts(parts, body), figures)
    }
}

impl<S: fmt::Debug> fmt::Debug for Rated<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rated").field("inner", &self.inner).field("shared", &self.shared).finish()
    }
}
