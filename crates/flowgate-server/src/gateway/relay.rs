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
use hyper::body::{Body, Frame, SizeHint};

use super::{
    client::Busy,
    headers::strip_response_trailers,
    upstream::{Line, Pool, Stream},
    watch::Watch,
};
use crate::wire::BodyError;

/// What a client gets: a body on its way, with or without a pass, or a few words of our own.
pub(super) type Out = GatedBody<Relay>;

/// The body of an upstream's response.
#[derive(Debug)]
pub(super) struct Relay {
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
    Stream(Box<Stream>),
    /// Nothing any more: the body has ended.
    Nothing,
    /// Nothing any more: the body broke off, which the client is yet to see.
    Broken(Option<BodyError>),
}

impl Relay {
    pub(super) fn new(from: From, watch: Rc<Watch>, busy: Busy) -> Self {
        let mut relay = Relay { from, watch, _busy: busy };
        relay.let_go();
        relay
    }

    /// Once the body has ended, what it came from is free for others. Whoever is told that it has ended asks no more. What
    /// is still to come of the request ends there too: nobody would bound it any more, nor wait for it.
    fn let_go(&mut self) {
        if self.is_end_stream()
            && let From::Line(line, pool) = std::mem::replace(&mut self.from, From::Nothing)
        {
            pool.give_back(line);
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.from {
            From::Line(line, _) => line.poll_frame(cx),
            From::Stream(stream) => stream.poll_frame(cx),
            From::Nothing => Poll::Ready(None),
            From::Broken(error) => Poll::Ready(error.take().map(Err)),
        }
    }

    /// The body broke off. What came before goes out first: whoever serves the connection drops what it has not sent when it
    /// is told, but sends it when there is nothing more for now.
    fn break_off(&mut self, error: BodyError, cx: &Context<'_>) {
        // What it came from is not to be trusted any more.
        self.from = From::Broken(Some(error));
        cx.waker().wake_by_ref();
    }
}

fn of_length(length: Option<u64>) -> SizeHint {
    length.map_or_else(SizeHint::default, SizeHint::with_exact)
}

/// What a client is told of a frame; `None`: the body ends without trailers.
fn told(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    if frame.is_data() {
        return Some(frame);
    }
    let mut trailers = frame.into_trailers().ok()?;
    strip_response_trailers(&mut trailers);
    (!trailers.is_empty()).then(|| Frame::trailers(trailers))
}

impl Body for Relay {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let was_broken = matches!(self.from, From::Broken(_));
        match ready!(self.poll_body(cx)) {
            Some(Err(error)) if !was_broken => {
                self.break_off(error, cx);
                Poll::Pending
            }
            Some(Ok(frame)) => {
                self.watch.touch();
                self.let_go();
                Poll::Ready(told(frame).map(Ok))
            }
            end => {
                self.let_go();
                Poll::Ready(end)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.from {
            From::Line(line, _) => line.is_over(),
            From::Stream(stream) => stream.is_over(),
            From::Nothing => true,
            From::Broken(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.from {
            From::Line(line, _) => of_length(line.left()),
            From::Stream(stream) => of_length(stream.left()),
            From::Nothing => SizeHint::with_exact(0),
            From::Broken(_) => SizeHint::default(),
        }
    }
}
