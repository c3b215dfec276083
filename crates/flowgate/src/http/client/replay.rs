//! Requests that can be sent twice.
//!
//! Owns how a request's body is repeated. A body that can be cloned is, and nothing has to be said for it: `Full<Bytes>`,
//! `Empty`, `String`, `Bytes`. That is what hyper-util's clients send, and what a reqwest client takes. A body type that is
//! sometimes a stream implements [`Replay`] and says `None` then; a foreign one is wrapped in [`Once`].

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, request::Parts};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

/// A body that can perhaps be sent again.
pub trait Replay: Sized {
    /// The same body again, from its start; `None` if there is no way back. Asked before anything of it is sent.
    fn replay(&self) -> Option<Self>;
}

impl<B: Clone> Replay for B {
    fn replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

pin_project! {
    /// A body that is sent once: its request waits its turn like all others, and is not retried.
    #[derive(Debug)]
    pub struct Once<B> {
        #[pin]
        body: B,
    }
}

impl<B> Once<B> {
    /// This body, once.
    pub fn new(body: B) -> Self {
        Once { body }
    }

    /// The body itself.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B> Replay for Once<B> {
    fn replay(&self) -> Option<Self> {
        None
    }
}

impl<B: http_body::Body> http_body::Body for Once<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The same request again.
pub(super) fn again<B: Replay>(request: &Request<B>) -> Option<Request<B>> {
    let body = request.body().replay()?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method.clone_from(request.method());
    parts.uri.clone_from(request.uri());
    parts.version = request.version();
    parts.headers.clone_from(request.headers());
    parts.extensions.clone_from(request.extensions());
    Some(Request::from_parts(parts, body))
}

/// A request taken apart and put together again, around a look at its parts.
pub(super) fn look_at<B, T>(request: Request<B>, look: impl FnOnce(&Parts) -> T) -> (Request<B>, T) {
    let (parts, body) = request.into_parts();
    let seen = look(&parts);
    (Request::from_parts(parts, body), seen)
}
