//! One HTTP/1.1 connection to an upstream.
//!
//! Owns the connection and the protocol on it. No task drives it: whoever asks polls it, so an exchange is woken by its own
//! sockets alone, and dropping the exchange drops the connection.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn::http1::{Builder, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::bell::Bell;
use crate::gateway::{clock::Moment, upload::Upload, watch::Watch};

const LARGEST_HEAD: usize = 64 << 10;

/// A connection to an upstream. It is moved about, and what it has is large: so that stays where it is.
#[derive(Debug)]
pub(in crate::gateway) struct Line(Box<Talk>);

#[derive(Debug)]
struct Talk {
    sender: SendRequest<Upload>,
    /// Dropped at its end, so that all who wait for something of it hear that nothing comes.
    connection: Option<Connection<TokioIo<TcpStream>, Upload>>,
    has_ended: bool,
    bell: Bell,
    /// Since when it is idle.
    since: Moment,
}

/// What came of asking.
pub(in crate::gateway) enum Heard {
    Answer(Response<Incoming>),
    /// There is none. If nothing of the request was sent, because the upstream had closed the connection before, it is back
    /// where it came from.
    Failed,
    /// The time is over.
    Late,
}

impl Line {
    pub(super) async fn new(stream: TcpStream, now: Moment) -> hyper::Result<Self> {
        let mut builder = Builder::new();
        builder.max_header_size(LARGEST_HEAD).max_buf_size(LARGEST_HEAD);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let bell = Bell::new();
        let connection = Some(connection);
        Ok(Line(Box::new(Talk { sender, connection, has_ended: false, bell, since: now })))
    }

    /// Sends the request, taken from where it is, and waits for the head of the response; `on_late` is asked when the time is over, and may give
    /// more of it.
    ///
    /// Cancel safety: dropped, the connection is in the middle of a request, and has to be dropped too.
    pub(in crate::gateway) async fn ask(
        &mut self,
        request: &mut Option<Request<Upload>>,
        watch: &Watch,
        on_late: impl Fn() -> bool,
    ) -> Heard {
        let Some(sent) = request.take() else { return Heard::Failed };
        let Talk { sender, bell, .. } = &mut *self.0;
        let mut answer = pin!(bell.muted(|| sender.try_send_request(sent)));
        poll_fn(|cx| {
            // Again where more time was given, and what was held back can be sent; and when the connection has ended.
            loop {
                self.poll(cx);
                // The answer comes by the connection, which was polled just now: it needs no waker of its own.
                match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(response)) => return Poll::Ready(Heard::Answer(response)),
                    Poll::Ready(Err(mut failed)) => {
                        *request = failed.take_message();
                        return Poll::Ready(Heard::Failed);
                    }
                    Poll::Pending if self.0.has_ended => drop(self.0.connection.take()),
                    Poll::Pending if !watch.is_over() => return Poll::Pending,
                    Poll::Pending if !on_late() => return Poll::Ready(Heard::Late),
                    Poll::Pending => {}
                }
            }
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        let Talk { connection, has_ended, bell, .. } = &mut *self.0;
        if let Some(connection) = connection
            && !*has_ended
        {
            let mut cx = Context::from_waker(bell.for_task(cx.waker()));
            *has_ended = connection.poll_without_shutdown(&mut cx).is_ready();
        }
    }

    /// The next piece of a body that comes by this line.
    pub(in crate::gateway) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // The body is filled by the connection, which is polled here: it needs no waker of its own. Whoever gets a piece asks
        // for the next one, until there is none and the connection is polled.
        let mut unwoken = Context::from_waker(Waker::noop());
        let mut next = |bell: &Bell| bell.muted(|| Pin::new(&mut *body).poll_frame(&mut unwoken));
        let frame = next(&self.0.bell);
        if frame.is_ready() {
            return frame;
        }
        self.drive(cx);
        next(&self.0.bell)
    }

    /// Moves bytes both ways, as far as they go.
    fn drive(&mut self, cx: &mut Context<'_>) {
        self.poll(cx);
        if self.0.has_ended {
            self.0.connection = None;
        }
    }

    /// Whether it can be asked again.
    pub(super) fn is_free(&mut self) -> bool {
        if !self.0.sender.is_ready() {
            self.drive(&mut Context::from_waker(Waker::noop()));
        }
        !self.0.has_ended && self.0.sender.is_ready()
    }

    /// It is idle from now on.
    pub(super) fn rest(&mut self, now: Moment) {
        self.0.since = now;
    }

    /// Since when it is idle.
    pub(super) fn since(&self) -> Moment {
        self.0.since
    }

    /// The bare connection, after the upstream has answered 101, with what it has said since.
    ///
    /// Cancel safety: dropped, the connection is closed.
    pub(in crate::gateway) async fn into_bare(mut self) -> Option<(TcpStream, Bytes)> {
        poll_fn(|cx| {
            self.poll(cx);
            if self.0.has_ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let parts = self.0.connection?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }
}
