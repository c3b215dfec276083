//! The client's side of a connection.
//!
//! Owns the bytes in and out, plain or TLS, and tells the connection's [`Watch`] of them: the first byte of a request starts
//! the time its head may take, and a byte in either direction shows that a stream lives.

use std::{
    cell::RefCell,
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::{
    clock::Span,
    frames::Frames,
    watch::{Stage, Standing, Watch},
};

const SMALL: usize = 1024;

/// A connection that can be looked at while somebody else reads and writes it.
#[derive(Debug)]
pub(super) struct Socket(RefCell<TcpStream>);

/// A handle to read and write it with.
#[derive(Clone, Debug)]
pub(super) struct SocketIo(Rc<Socket>);

/// Plain or TLS.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(SocketIo),
    Tls(Box<TlsStream<SocketIo>>),
}

/// A client's connection, watched.
#[derive(Debug)]
pub(super) struct ClientIo {
    /// What was read already to find out which protocol it is, if it is not empty. Behind a pointer, for few have any.
    early: Option<Box<Bytes>>,
    wire: Wire,
    pub(super) watch: Rc<Watch>,
    /// How long a request's head may take.
    head: Span,
    /// In HTTP/2, where not everything that comes is of a request.
    framed: Option<Box<Framed>>,
}

/// The frames of a connection, and how it stood before one of them was half there.
#[derive(Debug)]
struct Framed {
    frames: Frames,
    before: Option<Standing>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Rc<Self> {
        Rc::new(Socket(RefCell::new(stream)))
    }

    pub(super) fn io(self: &Rc<Self>) -> SocketIo {
        SocketIo(Rc::clone(self))
    }

    /// Whether the other side has closed its half or all of it, with or without something left to read.
    pub(super) fn is_hung_up(&self) -> bool {
        let stream = self.0.borrow();
        let ready = pin!(stream.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }
}

impl ClientIo {
    /// Whether the other side has hung up. If not, the task is woken when something comes from there: that may be it.
    pub(super) fn is_hung_up(&self, cx: &mut Context<'_>) -> bool {
        let socket = self.socket();
        let heard = socket.0.borrow().poll_read_ready(cx);
        heard.is_ready() && socket.is_hung_up()
    }

    fn socket(&self) -> &Socket {
        let SocketIo(socket) = match &self.wire {
            Wire::Plain(socket) => socket,
            Wire::Tls(stream) => stream.get_ref().0,
        };
        socket
    }

    /// Whether there may be something to read. If not, the task is woken when there is. TLS may have some that the socket knows
    /// nothing of, so there only reading tells.
    pub(super) fn may_have_words(&self, cx: &mut Context<'_>) -> bool {
        match &self.wire {
            Wire::Plain(SocketIo(socket)) => {
                self.has_early() || socket.0.borrow().poll_read_ready(cx).is_ready()
            }
            Wire::Tls(_) => true,
        }
    }

    /// Who is at the other side.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.socket().0.borrow().peer_addr()
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.wire, Wire::Tls(_))
    }

    /// Whether something that was read is yet to be read again.
    pub(super) fn has_early(&self) -> bool {
        self.early.is_some()
    }

    /// `head` is how long a request's head may take.
    pub(super) fn new(wire: Wire, watch: Rc<Watch>, head: Span) -> Self {
        ClientIo { early: None, wire, watch, head, framed: None }
    }

    /// The same connection before its first byte, on which not everything that comes is of a request: in HTTP/2 a client may as
    /// well ask whether anybody is there.
    pub(super) fn of_frames(self) -> Self {
        let framed = Framed { frames: Frames::new(), before: None };
        ClientIo { framed: Some(Box::new(framed)), ..self }
    }

    /// The same connection, with bytes that were read and are to be read again.
    pub(super) fn with_early(mut self, read: Bytes) -> Self {
        if !read.is_empty() {
            self.early = Some(Box::new(match self.early {
                None => read,
                Some(early) => Bytes::from([read, *early].concat()),
            }));
        }
        self
    }

    /// Something was read, for the first time or again. Where nothing is under way it is the beginning of a request: what is
    /// only read again has no socket that would tell of it, so without a time of its own it would never end.
    fn came(&mut self, bytes: &[u8]) {
        let is_half = match &mut self.framed {
            Some(framed) => framed.frames.is_half_behind(bytes),
            None => true,
        };
        match (self.watch.stage(), &mut self.framed) {
            (Stage::Idle | Stage::Pausing, framed) if is_half => {
                if let Some(framed) = framed {
                    framed.before = Some(self.watch.standing());
                }
                self.watch.begin(Stage::Head, self.head);
            }
            // It was no request, or one that is not served: neither prolongs the time of one who is idle.
            (Stage::Head, Some(framed)) if !is_half => {
                if let Some(before) = framed.before.take() {
                    self.watch.stand(before);
                }
            }
            _ => {}
        }
        self.moved();
    }

    fn moved(&self) {
        match self.watch.stage() {
            Stage::Streaming | Stage::Tunnel | Stage::Closing => self.watch.touch(),
            _ => {}
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut early) = self.early.take() {
            let again = early.split_to(early.len().min(buf.remaining()));
            buf.put_slice(&again);
            self.early = Some(early).filter(|early| !early.is_empty());
            self.came(&again);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.wire).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.came(&buf.filled()[before..]);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watch.has_unsent.set(true);
        let written = ready!(Pin::new(&mut self.wire).poll_write(cx, buf));
        self.moved();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.has_unsent.set(true);
        // A head and a small body in one piece: the system takes that in less time than two pieces.
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let written = if length <= SMALL {
            let mut piece = [0; SMALL];
            let mut end = 0;
            for buf in bufs {
                piece[end..end + buf.len()].copy_from_slice(buf);
                end += buf.len();
            }
            ready!(Pin::new(&mut self.wire).poll_write(cx, &piece[..end]))
        } else {
            ready!(Pin::new(&mut self.wire).poll_write_vectored(cx, bufs))
        };
        self.moved();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whoever flushes has written all it had before.
        let flushed = ready!(Pin::new(&mut self.wire).poll_flush(cx));
        self.watch.has_unsent.set(false);
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Plain(socket) => socket.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for SocketIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.0.borrow_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for SocketIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.0.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.0.borrow_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.0.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.0.borrow_mut()).poll_shutdown(cx)
    }
}
