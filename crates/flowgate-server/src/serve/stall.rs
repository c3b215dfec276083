//! A connection whose client does not read: it ends.
//!
//! Owns how long what is to be sent may stand still. Until it is sent, hyper waits for no further head, so the time for that
//! does not run.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection that ends so. One that is slow does not, as long as the system has room for more in time: it says so when
/// about a third of what it holds for the client is gone.
pub(super) struct Stalling<S> {
    stream: S,
    patience: Duration,
    /// Set as long as something cannot be sent, since when nothing could.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Stalling { stream, patience, end: None }
    }

    /// What came of sending something, unless nothing could be sent for too long.
    fn unless_stalled<T>(&mut self, sent: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.end = None;
            return sent;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        end.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.unless_stalled(sent, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.unless_stalled(sent, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket has nothing to flush, and nothing to wait for when it is closed for writing: what the system took is its own.

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use flowgate_testkit::Driven;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::advance,
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const MOMENT: Duration = Duration::from_millis(2);

    #[tokio::test(start_paused = true)]
    async fn s4_who_reads_slowly_is_sent_everything_and_who_stops_loses_the_connection() {
        // Seen to fail: without the sleep, nobody woke it at the end; with a sleep that what was sent did not end, the second
        // byte found its time over.
        let (stream, mut client) = duplex(1);
        let mut stream = Stalling::new(stream, PATIENCE);
        let mut sending = Driven::pending(stream.write_all(&[7; 9]));
        for _ in 0..4 {
            advance(PATIENCE * 2 / 3).await;
            assert!(sending.poll().is_none(), "its time is not over");
            assert_eq!(client.read_u8().await.unwrap(), 7);
            assert!(sending.poll().is_none(), "one byte more is sent");
        }
        let woken = sending.woken();
        advance(PATIENCE - MOMENT).await;
        assert_eq!(sending.woken(), woken, "its time is not over");
        advance(MOMENT * 2).await;
        assert!(sending.woken() > woken, "nobody woke it");
        assert_eq!(sending.ready().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
