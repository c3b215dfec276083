//! The body of a response, with what was read of it ahead.
//!
//! Owns handing a body on intact after it was looked at, and when the pass of its request comes back: at the end of the body,
//! at its error, or when it is dropped.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use super::destination::Destination;
use crate::gate::Pass;

/// As many frames are read ahead at most: each costs more than the bytes in it.
const MOST_FRAMES: usize = 1_024;

pin_project! {
    /// The body of a response that came through a [`Client`](super::Client): the same bytes and trailers that the wrapped
    /// service gave, whether or not some were read before. It holds its request's pass until its end.
    pub struct Body<R>
    where
        R: http_body::Body,
    {
        ahead: VecDeque<Frame<Bytes>>,
        ahead_bytes: u64,
        end: End<R::Error>,
        // Fields drop in this order: the slot is never free while the body still owns anything.
        #[pin]
        rest: R,
        held: Option<Held>,
    }
}

/// What comes after the frames that were read ahead.
enum End<E> {
    /// The rest of the body.
    Open,
    Failed(E),
    Closed,
}

/// What a request in flight holds: its slot, and the destination, which must not be forgotten meanwhile.
pub(super) struct Held {
    pub(super) pass: Pass,
    pub(super) _place: Arc<Destination>,
}

impl<R: http_body::Body> Body<R> {
    pub(super) fn new(rest: R) -> Self {
        let end = if rest.is_end_stream() { End::Closed } else { End::Open };
        Body { ahead: VecDeque::new(), ahead_bytes: 0, end, rest, held: None }
    }

    /// Keeps this until its end; if that has come already, gives it back at once.
    pub(super) fn hold(&mut self, held: Held) {
        self.held = Some(held).filter(|_| !http_body::Body::is_end_stream(self));
    }

    /// Whether it is known to be longer than `most` before any of it is read.
    pub(super) fn is_longer_than(&self, most: usize) -> bool {
        http_body::Body::size_hint(self).lower() > most as u64
    }

    /// All bytes, if the body was read to its end and has at most `most`.
    pub(super) fn whole(&self, most: usize) -> Option<Vec<u8>> {
        let is_whole = matches!(self.end, End::Closed) && self.ahead_bytes <= most as u64;
        is_whole.then(|| self.ahead.iter().filter_map(Frame::data_ref).flatten().copied().collect())
    }
}

impl<R: http_body::Body + Unpin> Body<R> {
    /// Reads ahead, until the end or until there is more than `most`. Nothing is lost if it is not polled again.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<()> {
        let has_room = |me: &Self| me.ahead_bytes <= most as u64 && me.ahead.len() < MOST_FRAMES;
        while matches!(self.end, End::Open) && has_room(self) {
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let frame = in_bytes(frame);
                    self.ahead_bytes += len(&frame);
                    self.ahead.push_back(frame);
                    if self.rest.is_end_stream() {
                        self.end = End::Closed;
                    }
                }
                Some(Err(error)) => self.end = End::Failed(error),
                None => self.end = End::Closed,
            }
        }
        Poll::Ready(())
    }
}

fn in_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

fn len(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

impl<R: http_body::Body> http_body::Body for Body<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let mut me = self.project();
        let frame = if let Some(frame) = me.ahead.pop_front() {
            *me.ahead_bytes -= len(&frame);
            Some(Ok(frame))
        } else {
            match std::mem::replace(me.end, End::Closed) {
                End::Closed => None,
                End::Failed(error) => Some(Err(error)),
                End::Open => {
                    let polled = me.rest.as_mut().poll_frame(cx);
                    // A frame and it goes on, or none yet: either way the end is still open.
                    if !matches!(polled, Poll::Ready(None | Some(Err(_)))) && !me.rest.is_end_stream() {
                        *me.end = End::Open;
                    }
                    ready!(polled).map(|frame| frame.map(in_bytes))
                }
            }
        };
        if me.ahead.is_empty() && matches!(me.end, End::Closed) {
            *me.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && matches!(self.end, End::Closed)
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match self.end {
            End::Open => self.rest.size_hint(),
            End::Closed => SizeHint::with_exact(0),
            End::Failed(_) => SizeHint::default(),
        };
        let (lower, upper) = (hint.lower(), hint.upper());
        if let Some(upper) = upper {
            hint.set_upper(upper.saturating_add(self.ahead_bytes));
        }
        hint.set_lower(lower.saturating_add(self.ahead_bytes));
        hint
    }
}

impl<R: http_body::Body> fmt::Debug for Body<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("ahead_bytes", &self.ahead_bytes)
            .field("holds_a_pass", &self.held.is_some())
            .finish_non_exhaustive()
    }
}
