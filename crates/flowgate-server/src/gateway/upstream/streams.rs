//! HTTP/2 connections to an upstream, which exchanges share.
//!
//! Owns how many there are and which one the next exchange gets.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    pin::pin,
    rc::Rc,
    task::Poll,
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
    rt::Executor as _,
};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;

use super::Pool;
use crate::gateway::{
    clock::{Moment, Span},
    upload::Upload,
    watch::Watch,
};

/// When all are full, the least full one takes more than its upstream wants at once, and they wait there.
const MOST_CONNECTIONS: usize = 16;
/// What most servers allow.
const MOST_STREAMS: usize = 100;
const LARGEST_HEAD: u32 = 64 << 10;

/// The connections to one upstream.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Streams {
    open: RefCell<Vec<Shared>>,
    /// One is opened at a time: those who come meanwhile may find room on it.
    opening: Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    sender: SendRequest<Upload>,
    under_way: Rc<Cell<usize>>,
    since: Cell<Moment>,
}

/// A place on a shared connection, for as long as an exchange lasts.
#[derive(Debug)]
pub(in crate::gateway) struct Stream(Rc<Cell<usize>>);

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Unanswered {
    Failed,
    Late,
}

impl Streams {
    /// The first connection with room.
    fn with_room(&self, now: Moment) -> Option<(SendRequest<Upload>, Stream)> {
        let mut open = self.open.borrow_mut();
        open.retain(|shared| !shared.sender.is_closed());
        let is_full = open.len() >= MOST_CONNECTIONS;
        let found = open.iter().find(|shared| shared.has_room());
        let least = || open.iter().filter(|_| is_full).min_by_key(|shared| shared.under_way.get());
        found.or_else(least).map(|shared| shared.take(now))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Closes those that have been idle for too long.
    pub(super) fn sweep(&self, now: Moment, kept: Span) {
        let is_kept = |shared: &Shared| shared.under_way.get() > 0 || shared.since.get().after(kept) > now;
        self.open.borrow_mut().retain(is_kept);
    }
}

impl Shared {
    fn has_room(&self) -> bool {
        self.sender.is_ready() && self.under_way.get() < MOST_STREAMS
    }

    fn take(&self, now: Moment) -> (SendRequest<Upload>, Stream) {
        self.under_way.set(self.under_way.get() + 1);
        self.since.set(now);
        (self.sender.clone(), Stream(Rc::clone(&self.under_way)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Pool {
    /// A place on a connection, which is opened where all are full.
    ///
    /// Cancel safety: dropped, no place is taken.
    pub(in crate::gateway) async fn stream(&self) -> io::Result<(SendRequest<Upload>, Stream)> {
        let now = self.now();
        if let Some(found) = self.streams.with_room(now) {
            return Ok(found);
        }
        let _turn = self.streams.opening.lock().await;
        if let Some(found) = self.streams.with_room(now) {
            return Ok(found);
        }
        let stream = self.connect().await?;
        let mut builder = Builder::new(self.spawner.clone());
        builder.max_header_list_size(LARGEST_HEAD);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        self.spawner.execute(async move {
            // How it ended, those on it were told one by one.
            let _ = connection.await;
        });
        let shared = Shared { sender, under_way: Rc::default(), since: Cell::new(now) };
        let taken = shared.take(now);
        self.streams.open.borrow_mut().push(shared);
        Ok(taken)
    }
}

impl Stream {
    /// Sends the request, taken from where it is, and waits for the head of the response.
    ///
    /// Cancel safety: dropped, the stream is reset.
    pub(in crate::gateway) async fn ask(
        &self,
        mut sender: SendRequest<Upload>,
        request: &mut Option<Request<Upload>>,
        watch: &Watch,
    ) -> Result<Response<Incoming>, Unanswered> {
        let Some(sent) = request.take() else { return Err(Unanswered::Failed) };
        let mut answer = pin!(sender.try_send_request(sent));
        poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
            Poll::Ready(Err(mut failed)) => {
                // It comes back if the connection was going away before anything of it was sent.
                *request = failed.take_message();
                Poll::Ready(Err(Unanswered::Failed))
            }
            Poll::Pending if watch.is_over() => Poll::Ready(Err(Unanswered::Late)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}
