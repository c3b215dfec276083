//! The connections of one worker to one upstream.
//!
//! Owns opening them, keeping them while they are idle, and letting them go.

use std::{cell::RefCell, io, net::SocketAddr, rc::Rc, time::Duration};

use tokio::net::{TcpStream, lookup_host};

use super::Streams;
use crate::{
    config::Upstream,
    gateway::{
        clock::{Clock, Moment, Span},
        tasks::Spawner,
        upload::Upload,
    },
    wire,
};

/// More idle ones than this are closed: a burst leaves its connections behind.
const MOST_IDLE: usize = 1024;
/// How long one is kept. Less than most servers keep theirs, so they rarely close one under a request.
const KEPT: Duration = Duration::from_secs(30);

/// An HTTP/1.1 connection to an upstream.
pub(in crate::gateway) type Line = wire::Line<Upload>;

/// The connections to one upstream.
#[derive(Debug)]
pub(in crate::gateway) struct Pool {
    pub(in crate::gateway) upstream: Upstream,
    clock: Rc<Clock>,
    /// Where HTTP/2 connections run.
    pub(super) spawner: Spawner,
    /// Since when each is idle. The one used last is the last.
    idle: RefCell<Vec<(Moment, Line)>>,
    /// Where it speaks HTTP/2.
    pub(super) streams: Streams,
}

impl Pool {
    pub(in crate::gateway) fn new(upstream: Upstream, spawner: Spawner) -> Rc<Self> {
        let clock = Rc::clone(&spawner.clock);
        Rc::new(Pool { upstream, clock, spawner, idle: RefCell::default(), streams: Streams::default() })
    }

    /// The idle connection that was used last.
    pub(in crate::gateway) fn take(&self) -> Option<Line> {
        self.idle.borrow_mut().pop().map(|(_, line)| line)
    }

    /// A new connection.
    ///
    /// Cancel safety: dropped, there is none.
    pub(in crate::gateway) async fn open(&self) -> io::Result<Line> {
        Ok(Line::new(self.connect().await?))
    }

    /// A bare connection. A name is asked for each time: whoever moves an upstream changes its name's address.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let (host, port) = (self.upstream.host(), self.upstream.port());
        let stream = match host.parse() {
            Ok(address) => TcpStream::connect(SocketAddr::new(address, port)).await?,
            Err(_) => connect_any(lookup_host((host, port)).await?).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Keeps a connection for the next request, if it can be used again.
    pub(in crate::gateway) fn give_back(&self, line: Line) {
        if self.idle.borrow().len() < MOST_IDLE && line.is_free() {
            self.idle.borrow_mut().push((self.clock.now(), line));
        }
    }

    /// Closes those that have been idle for too long.
    pub(in crate::gateway) fn sweep(&self) {
        let kept = Span::of(KEPT);
        let now = self.clock.now();
        let mut idle = self.idle.borrow_mut();
        let old = idle.partition_point(|(since, _)| since.after(kept) <= now);
        idle.drain(..old);
        self.streams.sweep(now, kept);
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Whether there is anything to sweep, now or later.
    pub(in crate::gateway) fn has_idle(&self) -> bool {
        !self.idle.borrow().is_empty() || !self.streams.is_empty()
    }
}

async fn connect_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
