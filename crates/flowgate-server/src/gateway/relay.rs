//! The body of a response on its way to the client.
//!
//! Owns the upstream's connection for as long as the body comes from it. Dropped before the end, because the client is gone,
//! it takes the connection with it, and so the upstream hears of it; at the end the connection goes back to its pool.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use flowgate::http::GatedBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::{
    client::Busy,
    upstream::{Line, Pool, Stream},
    watch::Watch,
};

/// What a client gets: a body on its way, with or without a pass, or a few words of our own.
pub(super) type Out = GatedBody<Relay>;

/// The body of an upstream's response.
#[derive(Debug)]
pub(super) struct Relay {
    body: Incoming,
    from: From,
    watch: Rc<Watch>,
    _busy: Busy,
}

/// What a body comes from.
#[derive(Debug)]
pub(super) enum From {
    /// An HTTP/1.1 connection of its own.
    Line(Line, Rc<Pool>),
    /// A stream of a shared HTTP/2 connection.
    Stream { _place: Stream },
    /// Nothing any more: the body has ended.
    Nothing,
}

impl Relay {
    pub(super) fn new(body: Incoming, from: From, watch: Rc<Watch>, busy: Busy) -> Self {
        let mut relay = Relay { body, from, watch, _busy: busy };
        // Whoever is told that there is no body does not ask for it.
        if relay.body.is_end_stream() {
            relay.end();
        }
        relay
    }

    /// The body has ended: what it came from is free for others.
    fn end(&mut self) {
        if let From::Line(line, pool) = std::mem::replace(&mut self.from, From::Nothing) {
            pool.give_back(line);
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match &mut self.from {
            From::Line(line, _) => line.poll_frame(&mut self.body, cx),
            From::Stream { .. } | From::Nothing => Pin::new(&mut self.body).poll_frame(cx),
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(self.poll_body(cx));
        match &frame {
            Some(Ok(_)) => self.watch.touch(),
            Some(Err(_)) => self.from = From::Nothing,
            None => self.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }
}
