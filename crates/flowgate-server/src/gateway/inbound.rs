//! The body of a request as it comes from the client.
//!
//! Owns nothing but the two ways there are: all of it came with the head, or it is still to be read.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// The body of a request.
#[derive(Debug)]
pub(super) enum Inbound {
    /// It came with the head.
    Whole(Bytes),
    /// It is read as it is asked for.
    Stream(Incoming),
}

impl Inbound {
    /// Whether some of it may still be on the connection.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self, Inbound::Stream(body) if !body.is_end_stream())
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Inbound::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inbound::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inbound::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Inbound::Whole(bytes) => bytes.is_empty(),
            Inbound::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Inbound::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inbound::Stream(body) => body.size_hint(),
        }
    }
}
