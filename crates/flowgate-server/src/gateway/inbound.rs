//! The body of a request as it comes from the client.
//!
//! Owns nothing but the two ways there are: all of it came with the head, or it is still to be read.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::wire::Cut;

/// The body of a request.
#[derive(Debug)]
pub(super) enum Inbound {
    /// It came with the head.
    Whole(Bytes),
    /// It is read as it is asked for.
    Stream(Incoming),
    /// The same over HTTP/2, where a stream can be reset without an error: then hyper says that it has ended, and it has not.
    Framed(Incoming),
}

impl Inbound {
    /// Whether some of it may still be on the connection.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self, Inbound::Stream(body) | Inbound::Framed(body) if !body.is_end_stream())
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Inbound::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inbound::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inbound::Stream(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|_| Cut)))
            }
            Inbound::Framed(body) => Poll::Ready(match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(frame) => Some(frame.map_err(|_| Cut)),
                None if body.is_end_stream() => None,
                None => Some(Err(Cut)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Inbound::Whole(bytes) => bytes.is_empty(),
            Inbound::Stream(body) | Inbound::Framed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Inbound::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inbound::Stream(body) | Inbound::Framed(body) => body.size_hint(),
        }
    }
}
