//! Whom a connection belongs to, and how much goes on there.
//!
//! Owns what all requests of one connection share.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use super::{
    clock::Span,
    headers::Speaker,
    tunnel::Tunnel,
    watch::{Stage, Watch},
};

/// How long a connection waits for another request before it comes to rest, and gives back what it needs for requests only.
const PAUSE: Duration = Duration::from_secs(1);

/// One client connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    pub(super) speaker: Speaker,
    watch: Rc<Watch>,
    idle: Span,
    busy: Cell<usize>,
    /// What the connection becomes once the response that says so has been sent.
    pub(super) tunnel: RefCell<Option<Box<Tunnel>>>,
    /// Whether an answer was given to a request whose body nobody read.
    has_unread: Cell<bool>,
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
            tunnel: RefCell::new(None),
            has_unread: Cell::new(false),
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
