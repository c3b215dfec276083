//! One request on an HTTP/2 connection that others share.
//!
//! Owns both of its bodies on the upstream's side. No task drives them: the exchange polls it, and dropping it resets the stream,
//! so whatever is still to come of either body ends with the exchange, and not later.

use std::{
    future::{Future, poll_fn},
    mem::take,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client::SendRequest};
use http::{HeaderMap, HeaderValue, Request, Response, header, response::Parts};
use hyper::body::{Body, Frame};

use super::streams::Place;
use crate::{
    gateway::{upload::Upload, watch::Watch},
    wire::{BodyError, Cut, Load},
};

/// A request under way, and then the body of its response.
#[derive(Debug)]
pub(in crate::gateway) struct Stream {
    // Fields drop in this order: the place is never free while the stream is there.
    sending: Option<Sending>,
    body: Option<RecvStream>,
    /// How much is left of the body, where that was told.
    left: Option<u64>,
    /// Whether the upstream was asked.
    is_asked: bool,
    place: Place,
}

/// The body of a request, and what of it was taken and not sent.
#[derive(Debug)]
struct Sending {
    stream: SendStream<Bytes>,
    upload: Upload,
    piece: Bytes,
    /// Whether nothing comes behind the piece.
    is_last: bool,
    /// Whether all is sent, or the upstream wants no more.
    is_done: bool,
    taken: Taken,
}

/// What was taken of a body: if it is no more than the first piece, the body can be had again.
#[derive(Debug, Default)]
enum Taken {
    #[default]
    Nothing,
    First(Bytes),
    More,
}

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Unanswered {
    /// The upstream has said, or it is known, that nothing was made of the request.
    Untouched,
    /// The connection, which others had used before, has ended.
    Stale,
    Failed,
    Late,
}

impl Stream {
    pub(super) fn new(place: Place) -> Self {
        Stream { sending: None, body: None, left: None, is_asked: false, place }
    }

    /// Sends the request with this head and waits for the head of its response. If there is none, the request is still where it
    /// was, unless its body cannot be had again.
    ///
    /// Cancel safety: dropped, the stream is to be dropped as well, which resets it.
    pub(in crate::gateway) async fn ask(
        &mut self,
        mut sender: SendRequest<Bytes>,
        head: Request<()>,
        request: &mut Option<Request<Upload>>,
        watch: &Watch,
    ) -> Result<Parts, Unanswered> {
        let Some(upload) = request.as_mut().map(|request| take(request.body_mut())) else {
            return Err(Unanswered::Failed);
        };
        let is_whole = upload.is_end_stream();
        let (mut answer, stream) = match sender.send_request(head, is_whole) {
            Ok(sent) => sent,
            Err(_) => {
                put_back(request, upload);
                return Err(Unanswered::Untouched);
            }
        };
        self.is_asked = true;
        self.sending = (!is_whole).then(|| Sending::new(stream, upload));
        let answered = poll_fn(|cx| {
            if let Err(Cut) = self.pump(cx) {
                return Poll::Ready(Err(Unanswered::Failed));
            }
            match Pin::new(&mut answer).poll(cx) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(self.place.unanswered(&error))),
                Poll::Pending if watch.is_over() => Poll::Ready(Err(Unanswered::Late)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        match answered {
            Ok(response) => Ok(self.begin_body(response)),
            Err(why) => {
                match self.sending.take().map(Sending::into_whole) {
                    None if is_whole => {}
                    Some(Some(upload)) => put_back(request, upload),
                    None | Some(None) => *request = None,
                }
                Err(why)
            }
        }
    }

    /// Nobody else is sent to this connection: it did not answer in time, and may never.
    pub(in crate::gateway) fn retire(&self) {
        self.place.retire();
    }

    fn begin_body(&mut self, response: Response<RecvStream>) -> Parts {
        // What was sent is not to be sent again any more.
        self.sending = self.sending.take().filter(|sending| !sending.is_done);
        let (mut head, body) = response.into_parts();
        let told = tell_length(&mut head.headers);
        self.left = if body.is_end_stream() { Some(0) } else { told };
        self.body = Some(body);
        head
    }

    /// The next piece of the response's body.
    pub(in crate::gateway) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // The rest of the request may be on its way still.
        self.pump(cx)?;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match ready!(body.poll_data(cx)) {
            Some(Ok(data)) => {
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                // It fails only for more than was taken.
                let _ = body.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(BodyError::Stream(error)))),
            None => body
                .poll_trailers(cx)
                .map(|trailers| trailers.map(|trailers| trailers.map(Frame::trailers)))
                .map(|trailers| trailers.map_err(BodyError::Stream).transpose()),
        }
    }

    /// Whether the body is known to have ended.
    pub(in crate::gateway) fn is_over(&self) -> bool {
        self.body.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    /// How many bytes are left of the body, where that is known.
    pub(in crate::gateway) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Sends as much as the upstream takes and the client brings.
    fn pump(&mut self, cx: &mut Context<'_>) -> Result<(), Cut> {
        if let Some(sending) = self.sending.as_mut().filter(|sending| !sending.is_done) {
            sending.is_done = sending.poll(cx)?.is_ready();
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let is_received = self.body.take().is_some_and(|body| body.is_end_stream());
        let is_sent = self.sending.take().is_none_or(|sending| sending.is_done);
        if self.is_asked && !(is_received && is_sent) {
            self.place.tell_of_resets();
        }
    }
}

impl Sending {
    fn new(stream: SendStream<Bytes>, upload: Upload) -> Self {
        Sending { stream, upload, piece: Bytes::new(), is_last: false, is_done: false, taken: Taken::Nothing }
    }

    /// Ready when there is no more to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if !self.piece.is_empty() {
                let is_sent = ready!(self.poll_piece(cx));
                if !is_sent || (self.is_last && self.piece.is_empty()) {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match ready!(Pin::new(&mut self.upload).poll_frame(cx)) {
                Some(frame) => {
                    if self.put(frame?) {
                        return Poll::Ready(Ok(()));
                    }
                }
                None => {
                    // If nobody takes it any more, the response says why.
                    let _ = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Sends what has room of the piece; `false` if the upstream takes no more.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.stream.capacity() == 0 && !matches!(ready!(self.stream.poll_capacity(cx)), Some(Ok(_))) {
            return Poll::Ready(false);
        }
        let room = self.stream.capacity().min(self.piece.len());
        let now = self.piece.split_to(room);
        Poll::Ready(self.stream.send_data(now, self.is_last && self.piece.is_empty()).is_ok())
    }

    /// What comes next of the body; whether that was the end.
    fn put(&mut self, frame: Frame<Bytes>) -> bool {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                // They cannot be had again.
                self.taken = Taken::More;
                // If nobody takes them any more, the response says why.
                let _ = self.stream.send_trailers(trailers);
                return true;
            }
        };
        self.taken = match take(&mut self.taken) {
            Taken::Nothing => Taken::First(data.clone()),
            _ => Taken::More,
        };
        self.is_last = self.upload.is_end_stream();
        self.stream.reserve_capacity(data.len());
        self.piece = data;
        false
    }

    /// The body, if all of it can be had again.
    fn into_whole(mut self) -> Option<Upload> {
        match self.taken {
            Taken::Nothing => {}
            Taken::First(piece) => self.upload.put_back(piece),
            Taken::More => return None,
        }
        Some(self.upload)
    }
}

fn put_back(request: &mut Option<Request<Upload>>, upload: Upload) {
    if let Some(request) = request {
        *request.body_mut() = upload;
    }
}

/// The length of a body, told once and as a number, or not at all: a client of HTTP/1.1 could read anything else in two ways.
/// HTTP/2 takes a length that is told twice, if it is the same, and an empty one.
fn tell_length(headers: &mut HeaderMap) -> Option<u64> {
    let told = headers.remove(header::CONTENT_LENGTH)?;
    let length = length(&told)?;
    headers.insert(header::CONTENT_LENGTH, told);
    Some(length)
}

fn length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}
