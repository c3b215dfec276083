//! One HTTP/1.1 connection to the server that is asked.
//!
//! Owns the connection and the protocol on it. No task drives it: the exchange that asks polls it, so it is
//! woken by its own sockets alone, and dropping the exchange drops the connection. It is written by hand
//! because it is the half of a proxy, and of a delivery, that a general client makes expensive: see
//! `docs/figures/http.md` and `flow.md`. It reads answers only: requests of the gateway's clients are read in
//! `gateway/plain` or by hyper.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    pin::pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, StatusCode, request, response};
use hyper::body::Frame;
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{
    chunks::{Chunks, Piece},
    head::{Framing, Head, Malformed},
    sender::{Cut, Load, Sender},
};

/// How much is read at once: little where little comes, and more where the last time was not enough.
const LEAST_READ: usize = 4 << 10;
const MOST_READ: usize = 16 << 10;
/// Where so much of a body has come, its client takes it about as fast: then more is read at once. One who reads slowly must not
/// cost that much.
const MUCH: usize = 1 << 20;
const MOST_READ_OF_MUCH: usize = 64 << 10;
/// How often one may say that an answer is yet to come (1xx).
const MOST_INTERIM: usize = 100;

/// A connection to who is asked. It is moved about, and what it has is large: so that stays where it is.
#[derive(Debug)]
pub(crate) struct Line<U>(Box<Talk<U>>);

#[derive(Debug)]
struct Talk<U> {
    socket: TcpStream,
    sender: Sender<U>,
    input: BytesMut,
    read_size: usize,
    /// How much has come of the answer.
    came: usize,
    /// How many answers have come before the answer.
    interim: usize,
    body: Rest,
    is_kept: bool,
}

/// What is left of a body.
#[derive(Debug)]
enum Rest {
    Bytes(u64),
    Chunks(Chunks),
    UntilClose,
}

/// What came of asking.
pub(crate) enum Heard {
    Answer(response::Parts),
    /// The connection speaks another protocol from here on.
    Switched(response::Parts, Option<HeaderValue>),
    /// There is no answer. The request is back where it came from, if it has no body, or nothing of it was sent (`unsent`) and
    /// all of its body is still to be had.
    Failed {
        unsent: bool,
        why: BodyError,
    },
    /// The time is over.
    Late,
}

/// What is to be done while there is nothing to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Wait on.
    On,
    /// Look again: what was held back may go out now.
    Anew,
    /// The time is over.
    Over,
}

/// Why a body ended before its time.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It was cut off, or is no body at all.
    Broken(Broken),
    /// The client's own one was cut off.
    Cut(Cut),
    /// What HTTP/2 has to say of it.
    Stream(h2::Error),
}

/// What is wrong with an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the connection was closed before the end of the answer")]
    Closed,
    #[error("the answer is not HTTP that can be read in only one way")]
    Malformed,
    #[error("{0}")]
    Connection(#[from] io::Error),
}

impl<U: Load> Line<U> {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Line(Box::new(Talk {
            socket,
            sender: Sender::new(),
            input: BytesMut::new(),
            read_size: LEAST_READ,
            came: 0,
            interim: 0,
            body: Rest::Bytes(0),
            is_kept: true,
        }))
    }

    /// Sends the request, taken from where it is, and waits for the head of the response; `write` writes its own head, and
    /// `waits` is asked whenever there is nothing to hear yet.
    ///
    /// Cancel safety: dropped, the connection is in the middle of a request, and has to be dropped too.
    pub(crate) async fn ask(
        &mut self,
        request: &mut Option<Request<U>>,
        write: impl FnOnce(&request::Parts, &mut Vec<u8>),
        waits: impl Fn() -> Waits,
    ) -> Heard {
        if self.is_dead() {
            return Heard::Failed { unsent: true, why: Broken::Closed.into() };
        }
        let Some((parts, upload)) = request.take().map(Request::into_parts) else {
            return Heard::Failed { unsent: false, why: Broken::Closed.into() };
        };
        let is_chunked = upload.size_hint().exact().is_none();
        let upload = (!upload.is_end_stream()).then_some(upload);
        let has_body = upload.is_some();
        self.0.sender.begin(|text| write(&parts, text), upload, is_chunked);
        (self.0.read_size, self.0.came, self.0.interim) = (LEAST_READ, 0, 0);
        let mut heard = poll_fn(|cx| {
            loop {
                match self.0.poll_head(cx, &parts.method) {
                    Poll::Ready(Ok(head)) => return Poll::Ready(self.0.begin_body(head)),
                    // Of a body that failed the rest is no whole one: that is for nobody to be sent again.
                    Poll::Ready(Err(why @ BodyError::Cut(_))) => {
                        return Poll::Ready(Heard::Failed { unsent: false, why });
                    }
                    Poll::Ready(Err(why)) => {
                        return Poll::Ready(Heard::Failed { unsent: !self.0.sender.has_sent(), why });
                    }
                    Poll::Pending => match waits() {
                        Waits::On => return Poll::Pending,
                        Waits::Over => return Poll::Ready(Heard::Late),
                        Waits::Anew => {}
                    },
                }
            }
        })
        .await;
        if let Heard::Failed { unsent, .. } = &mut heard {
            let back = if has_body { self.0.sender.take_back() } else { Some(U::default()) };
            // One that has ended already cannot be had again.
            *unsent &= back.is_some();
            let back = back.filter(|_| *unsent || !has_body);
            *request = back.map(|upload| Request::from_parts(parts, upload));
        }
        heard
    }

    /// The next piece of the body.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.poll_frame(cx).map(Result::transpose)
    }

    /// Whether anything has come back of what was asked last.
    pub(crate) fn has_heard(&self) -> bool {
        self.0.came > 0
    }

    /// Whether the body is known to have ended.
    pub(crate) fn is_over(&self) -> bool {
        match &self.0.body {
            Rest::Bytes(left) => *left == 0,
            Rest::Chunks(chunks) => chunks.is_over(),
            Rest::UntilClose => false,
        }
    }

    /// How many bytes are left of the body, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.0.body {
            Rest::Bytes(left) => Some(left),
            Rest::Chunks(_) | Rest::UntilClose => None,
        }
    }

    /// Whether it can be asked again: all was sent, all was read, and nobody has said that it was the last time.
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_kept && self.is_over() && self.0.sender.is_done() && self.0.input.is_empty()
    }

    /// Whether the other side has closed an idle connection, or said something on it that nobody asked for.
    pub(crate) fn is_dead(&self) -> bool {
        // Nothing is asked of the system unless it has told that there is something.
        let mut byte = [0];
        let read = self.0.socket.try_read(&mut byte);
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The bare connection, after a 101, with what the other side has said since.
    pub(crate) fn into_bare(self) -> (TcpStream, Bytes) {
        (self.0.socket, self.0.input.freeze())
    }
}

impl<U: Load> Talk<U> {
    /// The head of the final response; what else comes before it is dealt with.
    fn poll_head(&mut self, cx: &mut Context<'_>, method: &Method) -> Poll<Result<Head, BodyError>> {
        loop {
            self.sender.pump(cx, &mut self.socket)?;
            if !self.input.is_empty()
                && let Some(head) = Head::read(&mut self.input, method, U::ADDED)?
            {
                let status = head.parts.status;
                if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                self.interim += 1;
                if self.interim > MOST_INTERIM {
                    return Poll::Ready(Err(Broken::Malformed.into()));
                }
                if status == StatusCode::CONTINUE {
                    self.sender.open();
                }
                continue;
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(Broken::Closed.into()));
            }
        }
    }

    fn begin_body(&mut self, head: Head) -> Heard {
        let Head { parts, framing, is_kept, protocol } = head;
        self.is_kept = is_kept;
        self.body = match framing {
            Framing::Length(length) => Rest::Bytes(length),
            Framing::Chunks => Rest::Chunks(Chunks::default()),
            Framing::UntilClose => Rest::UntilClose,
        };
        match parts.status {
            StatusCode::SWITCHING_PROTOCOLS => Heard::Switched(parts, protocol),
            _ => Heard::Answer(parts),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BodyError>> {
        loop {
            if let Some(next) = self.next_frame()? {
                return Poll::Ready(Ok(next));
            }
            // The rest of the request may be on its way still.
            self.sender.pump(cx, &mut self.socket)?;
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(match self.body {
                    Rest::UntilClose => {
                        self.body = Rest::Bytes(0);
                        Ok(None)
                    }
                    Rest::Bytes(_) | Rest::Chunks(_) => Err(Broken::Closed.into()),
                });
            }
        }
    }

    /// What has been read of the body; `None` if more has to be.
    fn next_frame(&mut self) -> Result<Option<Option<Frame<Bytes>>>, BodyError> {
        match &mut self.body {
            Rest::Bytes(0) => Ok(Some(None)),
            Rest::Bytes(_) | Rest::UntilClose if self.input.is_empty() => Ok(None),
            Rest::Bytes(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(self.input.len());
                *left -= taken as u64;
                Ok(Some(Some(Frame::data(self.input.split_to(taken).freeze()))))
            }
            Rest::UntilClose => Ok(Some(Some(Frame::data(self.input.split().freeze())))),
            Rest::Chunks(chunks) => Ok(match chunks.next(&mut self.input)? {
                Piece::Data(data) => Some(Some(Frame::data(data))),
                Piece::Trailers(trailers) => Some(Some(Frame::trailers(trailers))),
                Piece::Over => Some(None),
                Piece::Missing => None,
            }),
        }
    }

    /// Reads more; 0 is the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, BodyError>> {
        self.input.reserve(self.read_size);
        let room = self.input.capacity() - self.input.len();
        let reading = pin!(self.socket.read_buf(&mut self.input));
        let read = ready!(reading.poll(cx)).map_err(Broken::Connection)?;
        self.came = self.came.saturating_add(read);
        if read == room {
            let most = if self.came < MUCH { MOST_READ } else { MOST_READ_OF_MUCH };
            self.read_size = (self.read_size * 2).min(most);
        }
        Poll::Ready(Ok(read))
    }
}

impl From<Broken> for BodyError {
    fn from(broken: Broken) -> Self {
        BodyError::Broken(broken)
    }
}

impl From<Malformed> for BodyError {
    fn from(_: Malformed) -> Self {
        BodyError::Broken(Broken::Malformed)
    }
}

impl From<Cut> for BodyError {
    fn from(cut: Cut) -> Self {
        BodyError::Cut(cut)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Broken(broken) => broken.fmt(f),
            BodyError::Cut(cut) => cut.fmt(f),
            BodyError::Stream(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BodyError {}
