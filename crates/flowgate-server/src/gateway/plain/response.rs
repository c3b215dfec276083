//! Writing the answer to a plain request.
//!
//! Owns how a body is framed, and the bytes that were not taken yet. It keeps one piece of a body at most: the next is asked
//! for when the client has taken the one before.

use std::{
    io::{self, IoSlice, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use flowgate::http::{Figures, Told};
use http::{StatusCode, header, response::Parts};
use hyper::{
    body::{Body, Frame},
    ext::ReasonPhrase,
};
use tokio::io::AsyncWrite;

use crate::{
    gateway::{clock::Clock, io::ClientIo, limiter::with_all, relay::Out},
    wire::put_line,
};

/// A piece that is no larger goes out in one with what stands before it.
const SMALL: usize = 4 << 10;

/// What is to be sent to a client.
#[derive(Debug, Default)]
pub(super) struct Writer {
    text: Vec<u8>,
    /// How much of the text was taken.
    taken: usize,
    /// The piece of the body behind the text.
    piece: Bytes,
    framing: Framing,
    /// Whether all of the body is here, or was.
    is_whole: bool,
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    /// So many bytes are left of it.
    Length(u64),
    Chunks,
    /// There is none, whatever the head says.
    #[default]
    None,
}

/// What is known of the request and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) is_head: bool,
    /// Whether it is the last answer on this connection.
    pub(super) is_last: bool,
}

impl Writer {
    /// One that writes into this.
    pub(super) fn new(text: Vec<u8>) -> Self {
        Writer { text, ..Writer::default() }
    }

    /// What it wrote into.
    pub(super) fn into_text(self) -> Vec<u8> {
        self.text
    }

    /// Sends what there is and what there comes, to the last byte of the body.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut ClientIo,
        mut body: Pin<&mut Out>,
    ) -> Poll<io::Result<()>> {
        while !self.is_whole {
            if !self.has_room() {
                ready!(self.poll_flush(cx, io))?;
            }
            match body.as_mut().poll_frame(cx) {
                Poll::Pending => {
                    // What there is need not wait.
                    let _ = self.poll_flush(cx, io)?;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.put(frame)?;
                    self.is_whole = self.framing != Framing::Chunks && body.is_end_stream();
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(None) => self.is_whole = true,
            }
            if self.is_whole {
                self.end()?;
            }
        }
        self.poll_flush(cx, io)
    }

    /// Begins with a response.
    pub(super) fn begin(&mut self, head: &Parts, body: &Out, about: About, clock: &Clock) {
        let status = head.status;
        self.begin_with(status, head.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes));
        let (mut told, mut has_date) = (None, false);
        for (name, value) in &head.headers {
            match *name {
                header::CONTENT_LENGTH if status == StatusCode::NO_CONTENT => continue,
                header::CONTENT_LENGTH => {
                    told = value.to_str().ok().and_then(|length| length.parse::<u64>().ok());
                }
                header::DATE => has_date = true,
                _ => {}
            }
            put_line(&mut self.text, name.as_str(), value.as_bytes());
        }
        let is_bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        self.framing = match told.or(body.size_hint().exact()) {
            _ if is_bodiless => Framing::None,
            // What is ours is told of even where it is not sent.
            Some(length @ 1..) if about.is_head && told.is_none() => {
                put_length(&mut self.text, length);
                Framing::None
            }
            _ if about.is_head => Framing::None,
            Some(length) => {
                if told.is_none() {
                    put_length(&mut self.text, length);
                }
                Framing::Length(length)
            }
            None => {
                put_line(&mut self.text, "transfer-encoding", b"chunked");
                Framing::Chunks
            }
        };
        self.is_whole = self.framing == Framing::None;
        self.end_head(about, clock, has_date);
    }

    /// Begins with what one is told who was turned away: all of it, which is also what is returned.
    pub(super) fn refuse(
        &mut self,
        told: &Told,
        figures: (Option<Figures>, Option<Figures>),
        about: About,
        clock: &Clock,
    ) -> &[u8] {
        self.begin_with(told.status(), None);
        told.write_lines(&mut self.text);
        with_all(figures, |figures| Figures::write_lines(figures, &mut self.text));
        if !(about.is_head && told.body().is_empty()) {
            put_length(&mut self.text, told.body().len() as u64);
        }
        self.end_head(about, clock, false);
        if !about.is_head {
            self.text.extend_from_slice(told.body());
        }
        (self.framing, self.is_whole) = (Framing::None, true);
        &self.text
    }

    /// Begins with this, which is all.
    pub(super) fn say(&mut self, text: &[u8]) {
        self.text.clear();
        self.text.extend_from_slice(text);
        (self.taken, self.framing, self.is_whole) = (0, Framing::None, true);
    }

    fn begin_with(&mut self, status: StatusCode, reason: Option<&[u8]>) {
        self.text.clear();
        self.taken = 0;
        self.text.extend_from_slice(b"HTTP/1.1 ");
        self.text.extend_from_slice(status.as_str().as_bytes());
        self.text.push(b' ');
        let known = status.canonical_reason().unwrap_or_default().as_bytes();
        self.text.extend_from_slice(reason.unwrap_or(known));
        self.text.extend_from_slice(b"\r\n");
    }

    fn end_head(&mut self, about: About, clock: &Clock, has_date: bool) {
        if !has_date {
            clock.with_date(|date| put_line(&mut self.text, "date", date.as_bytes()));
        }
        if about.is_last {
            put_line(&mut self.text, "connection", b"close");
        }
        self.text.extend_from_slice(b"\r\n");
    }

    fn has_room(&self) -> bool {
        self.piece.is_empty() && self.text.len() - self.taken <= SMALL
    }

    fn put(&mut self, frame: Frame<Bytes>) -> io::Result<()> {
        // Trailers are for those who ask for them, and they are not plain.
        let Ok(data) = frame.into_data() else { return Ok(()) };
        match &mut self.framing {
            Framing::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
            }
            // As a chunk it would be the end.
            Framing::Chunks if data.is_empty() => return Ok(()),
            Framing::Chunks => write!(self.text, "{:x}\r\n", data.len())?,
            Framing::None => return Ok(()),
        }
        let ends_line = self.framing == Framing::Chunks;
        if data.len() > SMALL && !ends_line {
            self.piece = data;
        } else {
            self.text.extend_from_slice(&data);
            if ends_line {
                self.text.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        match self.framing {
            // Less than was told: only the end of the connection can say so now.
            Framing::Length(1..) => Err(io::ErrorKind::UnexpectedEof.into()),
            Framing::Chunks => {
                self.text.extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
            Framing::Length(0) | Framing::None => Ok(()),
        }
    }

    /// Sends all there is.
    fn poll_flush(&mut self, cx: &mut Context<'_>, io: &mut ClientIo) -> Poll<io::Result<()>> {
        while self.taken < self.text.len() || !self.piece.is_empty() {
            let text = &self.text[self.taken..];
            let mut io = Pin::new(&mut *io);
            let written = if self.piece.is_empty() {
                ready!(io.as_mut().poll_write(cx, text))?
            } else {
                ready!(io.as_mut().poll_write_vectored(cx, &[IoSlice::new(text), IoSlice::new(&self.piece)]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_text = written.min(text.len());
            self.taken += of_text;
            self.piece.advance(written - of_text);
        }
        self.text.clear();
        self.taken = 0;
        Pin::new(io).poll_flush(cx)
    }
}

fn put_length(text: &mut Vec<u8>, length: u64) {
    // A vector takes all that is written.
    let _ = write!(text, "content-length: {length}\r\n");
}
