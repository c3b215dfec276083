//! HTTP/2 connections to an upstream, which exchanges share.
//!
//! Owns how many there are and which one the next exchange gets.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use h2::{
    Reason,
    client::{Builder, Connection, SendRequest},
};
use hyper::rt::Executor as _;
use tokio::{net::TcpStream, sync::Mutex};

use super::{
    Pool,
    stream::{Stream, Unanswered},
};
use crate::gateway::clock::{Moment, Span};

/// When all are full, the least full one takes more than its upstream wants at once, and they wait there.
const MOST_CONNECTIONS: usize = 16;
/// What most servers allow.
const MOST_STREAMS: usize = 100;
const LARGEST_HEAD: u32 = 64 << 10;
/// What is read ahead of a client that reads slowly, or waits for an upstream that does.
pub(in crate::gateway) const LARGEST_WINDOW: u32 = 256 << 10;
/// All that HTTP/2 allows: what one stream does not read is to hold back no other. Their own windows bound what comes.
const LARGEST_WINDOW_OF_ALL: u32 = (1 << 31) - 1;

/// The connections to one upstream.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Streams {
    open: RefCell<Vec<Shared>>,
    /// One is opened at a time: those who come meanwhile may find room on it.
    opening: Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    sender: SendRequest<Bytes>,
    load: Rc<Load>,
    since: Cell<Moment>,
}

/// What goes on on a connection.
#[derive(Debug, Default)]
struct Load {
    under_way: Cell<usize>,
    /// Whether nobody else is sent there.
    is_retired: Cell<bool>,
    /// Until it has ended.
    connection: RefCell<Option<Connection<TcpStream>>>,
    /// The task that drives it.
    driver: RefCell<Option<Waker>>,
}

/// A place on a shared connection, for as long as an exchange lasts.
#[derive(Debug)]
pub(super) struct Place {
    of: Rc<Load>,
    /// Whether the connection was there before.
    is_kept: bool,
}

impl Streams {
    /// The first connection with room.
    fn with_room(&self, now: Moment) -> Option<(SendRequest<Bytes>, Stream)> {
        let mut open = self.open.borrow_mut();
        open.retain_mut(Shared::is_usable);
        let is_full = open.len() >= MOST_CONNECTIONS;
        let found = open.iter().find(|shared| shared.has_room());
        let least = || open.iter().filter(|_| is_full).min_by_key(|shared| shared.load.under_way.get());
        found.or_else(least).map(|shared| shared.take(now, true))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Closes those that have been idle for too long.
    pub(super) fn sweep(&self, now: Moment, kept: Span) {
        let is_kept =
            |shared: &Shared| shared.load.under_way.get() > 0 || shared.since.get().after(kept) > now;
        self.open.borrow_mut().retain(is_kept);
    }
}

impl Shared {
    /// Whether the upstream has neither gone nor said that it goes, and answers what it is asked.
    fn is_usable(&mut self) -> bool {
        let state = self.sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        !self.load.is_retired.get() && !matches!(state, Poll::Ready(Err(_)))
    }

    fn has_room(&self) -> bool {
        self.load.under_way.get() < MOST_STREAMS.min(self.sender.current_max_send_streams())
    }

    fn take(&self, now: Moment, is_kept: bool) -> (SendRequest<Bytes>, Stream) {
        self.load.under_way.set(self.load.under_way.get() + 1);
        self.since.set(now);
        (self.sender.clone(), Stream::new(Place { of: Rc::clone(&self.load), is_kept }))
    }
}

impl Load {
    fn of(connection: Connection<TcpStream>) -> Rc<Self> {
        Rc::new(Load { connection: RefCell::new(Some(connection)), ..Load::default() })
    }

    /// Drives the connection to its end.
    async fn drive(&self) {
        poll_fn(|cx| {
            *self.driver.borrow_mut() = Some(cx.waker().clone());
            self.poll_connection(cx)
        })
        .await;
    }

    /// Sends what there is to send, and hears what was said.
    fn poll_connection(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut connection = self.connection.borrow_mut();
        if let Some(driven) = &mut *connection {
            // How it ended, those on it were told one by one.
            let _ = ready!(Pin::new(driven).poll(cx));
            *connection = None;
            cx.waker().wake_by_ref();
        }
        Poll::Ready(())
    }
}

impl Place {
    /// Tells the upstream now of the streams that have ended here. What begins goes out before that, and there more would be
    /// under way than may be; so a slot comes back only when its end is on the way.
    pub(super) fn tell_of_resets(&self) {
        let driver = self.of.driver.borrow().clone();
        if let Some(driver) = driver {
            // Where it ends, its task hears of that.
            let _ = self.of.poll_connection(&mut Context::from_waker(&driver));
        }
    }

    pub(super) fn retire(&self) {
        self.of.is_retired.set(true);
    }

    /// What it means for a request on this connection that there is no response to it (RFC 9113, 6.8 and 8.7).
    pub(super) fn unanswered(&self, error: &h2::Error) -> Unanswered {
        let is_refused = error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM);
        if error.is_remote() && is_refused {
            Unanswered::Untouched
        } else if error.is_io() && self.is_kept {
            Unanswered::Stale
        } else {
            Unanswered::Failed
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.under_way.set(self.of.under_way.get() - 1);
    }
}

impl Pool {
    /// A place on a connection, which is opened where all are full.
    ///
    /// Cancel safety: dropped, no place is taken.
    pub(in crate::gateway) async fn stream(&self) -> io::Result<(SendRequest<Bytes>, Stream)> {
        let now = self.now();
        if let Some(found) = self.streams.with_room(now) {
            return Ok(found);
        }
        let _turn = self.streams.opening.lock().await;
        if let Some(found) = self.streams.with_room(now) {
            return Ok(found);
        }
        let stream = self.connect().await?;
        let mut builder = Builder::new();
        builder.max_header_list_size(LARGEST_HEAD).enable_push(false).initial_max_send_streams(MOST_STREAMS);
        builder.initial_window_size(LARGEST_WINDOW).initial_connection_window_size(LARGEST_WINDOW_OF_ALL);
        let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        let load = Load::of(connection);
        let driven = Rc::clone(&load);
        self.spawner.execute(async move { driven.drive().await });
        let shared = Shared { sender, load, since: Cell::new(now) };
        let taken = shared.take(now, false);
        self.streams.open.borrow_mut().push(shared);
        Ok(taken)
    }
}
