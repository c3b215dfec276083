//! The end of a connection whose client is still sending: it gets its answer all the same.
//!
//! A socket that is closed with something unread in it resets the other side, which then loses an answer it has not read
//! yet. So where a body was left unread, the connection ends for writing only, and what comes is thrown away for a while.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::stall::Stalling;

/// How long a client may go on sending what nobody reads.
const PATIENCE: Duration = Duration::from_secs(5);
const SCRATCH: usize = 16 * 1024;

/// Whether something is left of the body of the request that came last.
#[derive(Clone, Default)]
pub(super) struct Left(Arc<AtomicBool>);

impl Left {
    /// The body of the next request.
    pub(super) fn watch(&self, body: Incoming) -> Watched {
        self.0.store(false, Ordering::Relaxed);
        Watched { body, has_ended: false, left: self.clone() }
    }
}

/// A body that says whether it was read.
pub(super) struct Watched {
    body: Incoming,
    has_ended: bool,
    left: Left,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.has_ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let is_left = !self.has_ended && !self.body.is_end_stream();
        self.left.0.store(is_left, Ordering::Relaxed);
    }
}

/// A connection that ends so.
pub(super) struct Lingering {
    stream: Stalling<TcpStream>,
    left: Left,
    /// Set as soon as nothing more is said.
    end: Option<Pin<Box<Sleep>>>,
}

impl Lingering {
    pub(super) fn new(stream: Stalling<TcpStream>, left: Left) -> Self {
        Lingering { stream, left, end: None }
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.left.0.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let Lingering { stream, end, .. } = &mut *self;
        let end = end.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        let mut scratch = [0; SCRATCH];
        while end.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}
