//! Whom a connection belongs to, and how much goes on there.
//!
//! Owns what all requests of one connection share.

use std::{
    cell::Cell,
    fmt,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Incoming};

use super::{
    clock::Span,
    headers::Speaker,
    tunnel::Tunnel,
    watch::{Stage, Watch},
};

/// How long a connection waits for another request before it comes to rest, and gives back what it needs for requests only.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the rest of a short body that nobody wants may take.
const LATEST_REST: Duration = Duration::from_secs(5);

/// One client connection.
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    pub(super) speaker: Speaker,
    watch: Rc<Watch>,
    idle: Span,
    busy: Cell<usize>,
    /// What the connection becomes once the response that says so has been sent.
    pub(super) tunnel: Cell<Option<Box<Tunnel>>>,
    /// Whether an answer was given to a request whose body nobody read.
    has_unread: Cell<bool>,
    /// The rest of a short body that nobody wants: it is read all the same, so that the next request can follow.
    unwanted: Cell<Option<Box<Incoming>>>,
}

/// A request under way on the connection.
#[derive(Debug)]
pub(super) struct Busy(Rc<Client>);

impl Client {
    pub(super) fn new(peer: SocketAddr, is_tls: bool, watch: Rc<Watch>, idle: Span) -> Rc<Self> {
        Rc::new(Client {
            peer,
            speaker: Speaker::new(peer, is_tls),
            watch,
            idle,
            busy: Cell::new(0),
            tunnel: Cell::new(None),
            has_unread: Cell::new(false),
            unwanted: Cell::new(None),
        })
    }

    /// A request begins; the connection is idle again when the last one has ended.
    pub(super) fn begin(self: &Rc<Self>) -> Busy {
        self.busy.set(self.busy.get() + 1);
        self.watch.wait();
        Busy(Rc::clone(self))
    }

    /// Nothing is under way, and something may follow soon.
    pub(super) fn pause(&self) {
        self.watch.begin(Stage::Pausing, Span::of(PAUSE).min(self.idle));
    }

    /// Nothing has been under way for a while, and nothing is expected soon.
    pub(super) fn rest(&self) {
        self.watch.begin(Stage::Idle, self.idle.less(Span::of(PAUSE)));
    }

    pub(super) fn leave_unread(&self) {
        self.has_unread.set(true);
    }

    pub(super) fn has_unread(&self) -> bool {
        self.has_unread.get()
    }

    /// What is still to come of this body is to be read and forgotten: its request is answered.
    pub(super) fn forget(&self, body: Incoming) {
        self.unwanted.set(Some(Box::new(body)));
        self.has_unread.set(true);
        self.watch.begin(Stage::Streaming, Span::of(LATEST_REST).min(self.idle));
    }

    /// Reads on in a body that nobody wants.
    pub(super) fn poll_unwanted(&self, cx: &mut Context<'_>) {
        let Some(mut body) = self.unwanted.take() else { return };
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return self.unwanted.set(Some(body)),
                Poll::Ready(Some(Ok(_))) => {}
                // If it broke off, so did the connection.
                Poll::Ready(_) => break,
            }
        }
        self.has_unread.set(false);
        self.pause();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("peer", &self.peer).field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let left = self.0.busy.get() - 1;
        self.0.busy.set(left);
        if left == 0 {
            self.0.pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_and_its_counts_take_two_cache_lines() {
        // Seen to fail: with a header's value in it, as the address was one. Every connection that has just been answered has a
        // client.
        assert!(size_of::<Client>() + 2 * size_of::<usize>() <= 128, "{}", size_of::<Client>());
    }
}
