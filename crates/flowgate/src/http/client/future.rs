//! A request under way through a client.
//!
//! Owns the future that a [`Client`](super::Client) returns. It is one allocation, which is nothing beside a
//! request over the network, and lets [`call`](super::call) tell its course in plain words.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use super::{body::Body, error::Error};

/// The response of a server, after as many attempts as it took.
///
/// Cancel safety: dropped before an attempt is sent, nothing is sent any more, and a place in line is left. Dropped during an
/// attempt, the wrapped service's future is dropped, and whether the server does the work is not known; the slot comes back.
/// Dropped during a backoff, the request is known not to have run.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<R: http_body::Body> {
    course: Pin<Box<dyn Future<Output = Outcome<R>> + Send>>,
}

pub(super) type Outcome<R> = Result<Response<Body<R>>, Error>;

impl<R: http_body::Body> ResponseFuture<R> {
    pub(super) fn new(course: impl Future<Output = Outcome<R>> + Send + 'static) -> Self {
        ResponseFuture { course: Box::pin(course) }
    }
}

impl<R: http_body::Body> Future for ResponseFuture<R> {
    type Output = Outcome<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.course.as_mut().poll(cx)
    }
}

impl<R: http_body::Body> fmt::Debug for ResponseFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
