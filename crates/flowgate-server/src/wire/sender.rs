//! What goes out on a line: the head of a request, and its body piece by piece.
//!
//! Owns the framing of bodies and the bytes that were not taken yet. It keeps one piece at most: the next is asked for when
//! the upstream has taken the one before.

use std::{
    error::Error,
    fmt,
    io::{IoSlice, Write},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use tokio::{io::AsyncWrite, net::TcpStream};

/// A piece that is no larger goes out in one with what stands before it.
const SMALL: usize = 4 << 10;

/// The body of a request. The default is none.
pub(crate) trait Load: Body<Data = Bytes, Error = Cut> + Default + Unpin {
    /// How many headers are added to the answer, at most, by whoever sends such a body.
    const ADDED: usize = 0;

    /// The piece that was taken last, of which nothing was used, is the next one again.
    fn put_back(&mut self, piece: Bytes);

    /// Who is asked wants what was held back until then.
    fn open(&self) {}
}

/// The body ended before its time. Whoever brings it knows why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut;

/// A body that is there as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole(pub(crate) Bytes);

/// What is to be sent, and what of it was.
#[derive(Debug)]
pub(super) struct Sender<U> {
    text: Vec<u8>,
    /// How much of the text was taken.
    taken: usize,
    /// The piece of the body behind the text.
    piece: Bytes,
    upload: Option<U>,
    is_chunked: bool,
    /// Whether the line is missing that ends a chunk: it goes out with what comes next.
    owes_line_end: bool,
    /// A piece as it came, for as long as nothing was taken: with it the body is whole again.
    first: Option<Bytes>,
    has_sent: bool,
    /// Whether the upstream takes nothing any more. It may have said something before.
    is_shut: bool,
}

/// What came of asking for more of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetched {
    Piece,
    /// There is no more right now, or none at all.
    Nothing,
    /// The piece before is still here.
    NoRoom,
}

impl<U: Load> Sender<U> {
    pub(super) fn new() -> Self {
        Sender {
            text: Vec::new(),
            taken: 0,
            piece: Bytes::new(),
            upload: None,
            is_chunked: false,
            owes_line_end: false,
            first: None,
            has_sent: false,
            is_shut: false,
        }
    }

    /// Begins with a request, whose head `write` writes.
    pub(super) fn begin(&mut self, write: impl FnOnce(&mut Vec<u8>), upload: Option<U>, is_chunked: bool) {
        self.text.clear();
        write(&mut self.text);
        (self.taken, self.piece, self.first) = (0, Bytes::new(), None);
        (self.upload, self.is_chunked, self.owes_line_end) = (upload, is_chunked, false);
        (self.has_sent, self.is_shut) = (false, false);
    }

    /// Whether all has been sent.
    pub(super) fn is_done(&self) -> bool {
        self.upload.is_none() && self.text.is_empty() && self.piece.is_empty() && !self.is_shut
    }

    /// Whether anything has been sent.
    pub(super) fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// The body, with what was taken of it put back, if nothing of it was sent.
    pub(super) fn take_back(&mut self) -> Option<U> {
        let mut upload = self.upload.take()?;
        if let Some(first) = self.first.take() {
            upload.put_back(first);
        }
        Some(upload)
    }

    /// The upstream wants the body that is held back.
    pub(super) fn open(&self) {
        if let Some(upload) = &self.upload {
            upload.open();
        }
    }

    /// Sends as much as the upstream takes and the client brings.
    pub(super) fn pump(&mut self, cx: &mut Context<'_>, socket: &mut TcpStream) -> Result<(), Cut> {
        loop {
            let fetched = self.fetch(cx)?;
            if self.flush(cx, socket).is_pending() || self.is_shut {
                return Ok(());
            }
            // All of it is out; unless nothing can come now, there may be more.
            if fetched == Fetched::Nothing {
                return Ok(());
            }
        }
    }

    /// The next piece of the body, if the one before is gone.
    fn fetch(&mut self, cx: &mut Context<'_>) -> Result<Fetched, Cut> {
        let Some(upload) = &mut self.upload else { return Ok(Fetched::Nothing) };
        // The first one goes out with the head.
        let is_first = !self.has_sent && self.first.is_none();
        if !self.piece.is_empty() || !(self.text.is_empty() || is_first) {
            return Ok(Fetched::NoRoom);
        }
        match Pin::new(upload).poll_frame(cx) {
            Poll::Pending => {
                self.end_line();
                return Ok(Fetched::Nothing);
            }
            Poll::Ready(Some(frame)) => self.put(frame?),
            Poll::Ready(None) => self.end(b"0\r\n\r\n"),
        }
        Ok(Fetched::Piece)
    }

    fn put(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            // As a chunk it would be the end.
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                if !self.has_sent {
                    self.first = Some(data.clone());
                }
                self.put_data(data);
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    let mut end = b"0\r\n".to_vec();
                    for (name, value) in &trailers {
                        put_line(&mut end, name.as_str(), value.as_bytes());
                    }
                    end.extend_from_slice(b"\r\n");
                    self.end(&end);
                }
            }
        }
    }

    fn put_data(&mut self, data: Bytes) {
        self.end_line();
        if self.is_chunked {
            write!(self.text, "{:x}\r\n", data.len()).expect("a vector takes all that is written");
            self.owes_line_end = true;
        }
        if data.len() > SMALL {
            self.piece = data;
        } else {
            self.text.extend_from_slice(&data);
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.owes_line_end) {
            self.text.extend_from_slice(b"\r\n");
        }
    }

    fn end(&mut self, end: &[u8]) {
        self.upload = None;
        self.end_line();
        if self.is_chunked {
            self.text.extend_from_slice(end);
        }
    }

    /// Sends what there is.
    fn flush(&mut self, cx: &mut Context<'_>, socket: &mut TcpStream) -> Poll<()> {
        while self.taken < self.text.len() || !self.piece.is_empty() {
            let text = &self.text[self.taken..];
            let mut socket = Pin::new(&mut *socket);
            let written = if self.piece.is_empty() {
                socket.poll_write(cx, text)
            } else {
                socket.as_mut().poll_write_vectored(cx, &[IoSlice::new(text), IoSlice::new(&self.piece)])
            };
            match written {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(written @ 1..)) => self.note(written),
                Poll::Ready(_) => {
                    self.is_shut = true;
                    break;
                }
            }
        }
        Poll::Ready(())
    }

    fn note(&mut self, written: usize) {
        self.has_sent = true;
        self.first = None;
        let of_text = written.min(self.text.len() - self.taken);
        self.taken += of_text;
        if self.taken == self.text.len() {
            self.text.clear();
            self.taken = 0;
        }
        self.piece.advance(written - of_text);
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let all = std::mem::take(&mut self.0);
        Poll::Ready((!all.is_empty()).then(|| Ok(Frame::data(all))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

impl Load for Whole {
    fn put_back(&mut self, piece: Bytes) {
        self.0 = piece;
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the request ended before its time")
    }
}

impl Error for Cut {}

/// Writes one header.
pub(crate) fn put_line(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}
