//! At most so many connections at once.
//!
//! Owns the cap of an accept loop: a surplus socket is closed as soon as it is accepted, before a byte of it is read. It is a
//! gate like any other, and a connection's pass lives in its stream.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use flowgate_core::OptionError;
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

use crate::gate::{Gate, Look, Pass};

/// Limits how many connections a listener has at once. Cheap to clone: all clones are the same limit.
///
/// With axum (feature `axum`), [`Connections::on`] makes a listener for `axum::serve`; with hyper, take connections
/// from [`Connections::accept`].
#[derive(Clone, Debug)]
pub struct Connections {
    gate: Gate,
}

pin_project! {
    /// A connection that is counted for as long as it lives.
    #[derive(Debug)]
    pub struct Connection<T> {
        #[pin]
        stream: T,
        pass: Pass,
    }
}

impl<T> Connection<T> {
    /// Returns the stream, for example to set its options.
    pub fn stream(&self) -> &T {
        &self.stream
    }

    /// Returns the stream.
    pub fn stream_mut(&mut self) -> &mut T {
        &mut self.stream
    }
}

/// A listener whose connections are limited.
#[cfg(feature = "axum")]
#[derive(Debug)]
pub struct Capped<L> {
    listener: L,
    connections: Connections,
}

impl Connections {
    /// Allows at most `max` at once: 1 to 1,000,000,000.
    pub fn new(max: u32) -> Result<Self, OptionError> {
        Ok(Connections { gate: Gate::builder().name("connections").max(max).reject().build()? })
    }

    /// Changes the limit. If more connections are open, they stay, and new ones are accepted once enough of them have
    /// gone.
    pub fn set_max(&self, max: u32) -> Result<(), OptionError> {
        self.gate.set_limits(self.gate.limits().with_max(max)?);
        Ok(())
    }

    /// Counts a stream. If the limit is reached, closes it and returns `None`.
    pub fn admit<T>(&self, stream: T) -> Option<Connection<T>> {
        let pass = self.gate.try_enter().ok()?;
        Some(Connection { stream, pass })
    }

    /// Waits for the next connection within the limit; those beyond it are closed.
    ///
    /// Cancel safety: dropped, no accepted connection is lost, except one that was to be closed.
    pub async fn accept(&self, listener: &TcpListener) -> io::Result<(Connection<TcpStream>, SocketAddr)> {
        loop {
            let (stream, peer) = listener.accept().await?;
            if let Some(connection) = self.admit(stream) {
                return Ok((connection, peer));
            }
        }
    }

    /// Returns the state of the gate.
    pub fn look(&self) -> Look {
        self.gate.look()
    }

    /// Wraps a listener for `axum::serve`, with this limit.
    #[cfg(feature = "axum")]
    pub fn on<L: axum::serve::Listener>(&self, listener: L) -> Capped<L> {
        Capped { listener, connections: self.clone() }
    }
}

#[cfg(feature = "axum")]
impl<L: axum::serve::Listener> axum::serve::Listener for Capped<L> {
    type Io = Connection<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = self.listener.accept().await;
            if let Some(connection) = self.connections.admit(stream) {
                return (connection, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// So that `into_make_service_with_connect_info::<Peer>()` works with a capped listener too.
#[cfg(feature = "axum")]
impl<L> axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, Capped<L>>> for super::Peer
where
    L: axum::serve::Listener<Addr = SocketAddr>,
{
    fn connect_info(stream: axum::serve::IncomingStream<'_, Capped<L>>) -> Self {
        super::Peer(*stream.remote_addr())
    }
}

impl<T: AsyncRead> AsyncRead for Connection<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_read(cx, buf)
    }
}

impl<T: AsyncWrite> AsyncWrite for Connection<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
