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
    tunnel: Cell<Option<Box<Tunnel>>>,
    /// Whether an answer was given to a request whose body nobody read, or will.
    has_unread: Cell<bool>,
    /// Whether it comes to rest when nothing is under way.
    rests: Cell<bool>,
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
            rests: Cell::new(true),
            unwanted: Cell::new(None),
        })
    }

    /// A request begins; the connection is idle again when the last one has ended.
    pub(super) fn begin(self: &Rc<Self>) -> Busy {
        self.busy.set(self.busy.get() + 1);
        self.watch.wait();
        Busy(Rc::clone(self))
    }

    /// That request was the last one: the connection becomes this. What says so is sent like any other response, and may stand
    /// still no longer.
    pub(super) fn switch(&self, last: Busy, tunnel: Tunnel) {
        drop(last);
        self.watch.begin(Stage::Streaming, tunnel.stand_still);
        self.tunnel.set(Some(Box::new(tunnel)));
    }

    /// What the connection has become, if anything else.
    pub(super) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Nothing is under way, and something may follow soon.
    pub(super) fn pause(&self) {
        let span = if self.rests.get() { Span::of(PAUSE).min(self.idle) } else { self.idle };
        self.watch.begin(Stage::Pausing, span);
    }

    /// There is nothing to give back at rest (HTTP/2): it pauses for as long as it may be idle.
    pub(super) fn never_rest(&self) {
        self.rests.set(false);
        self.pause();
    }

    /// Nothing has been under way for a while, and nothing is expected soon.
    pub(super) fn rest(&self) {
        self.watch.begin(Stage::Idle, self.idle.less(Span::of(PAUSE)));
    }

    pub(super) fn leave_unread(&self) {
        self.has_unread.set(true);
    }

    pub(super) fn has_unread(&self) -> bool {
        let unwanted = self.unwanted.take();
        let is_left = unwanted.is_some();
        self.unwanted.set(unwanted);
        is_left || self.has_unread.get()
    }

    /// What is still to come of this body is to be read and forgotten: its request is answered. A byte of it does
    /// not begin its time anew.
    pub(super) fn forget(&self, body: Incoming) {
        self.unwanted.set(Some(Box::new(body)));
        self.watch.begin(Stage::Head, Span::of(LATEST_REST).min(self.idle));
    }

    /// Reads on in a body that nobody wants.
    pub(super) fn poll_unwanted(&self, cx: &mut Context<'_>) {
        let Some(mut body) = self.unwanted.take() else { return };
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return self.unwanted.set(Some(body)),
                // hyper tells of the end only when the next request is there.
                Poll::Ready(Some(Ok(_))) if !body.is_end_stream() => {}
                // If it broke off, so did the connection.
                Poll::Ready(_) => break,
            }
        }
        // The next request may have come with the end of it.
        if self.busy.get() == 0 {
            self.pause();
        }
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
    use std::{
        convert::Infallible,
        future::{Future, pending, ready},
        pin::pin,
        rc::Weak,
        task::Waker,
    };

    use bytes::Bytes;
    use flowgate::Gate;
    use http::{Request, Response};
    use hyper::{server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::{
        io::{AsyncWriteExt, duplex},
        net::{TcpListener, TcpStream},
    };

    use super::{
        super::{clock::Clock, watch::Watched},
        *,
    };

    /// A client, and the task of its connection, in which nothing happens.
    fn client() -> (Rc<Client>, impl Future<Output = ()>) {
        let mut client = None;
        let places = (&Rc::new(Clock::new()), &Rc::default(), &Rc::default());
        let task = Watched::new(places, Weak::new(), (), |watch| {
            let peer = ([127, 0, 0, 1], 1).into();
            client = Some(Client::new(peer, false, Rc::clone(watch), Span::of(PAUSE)));
            pending()
        });
        (client.expect("it was made"), task)
    }

    #[tokio::test]
    async fn g5_a_connection_that_ends_before_it_becomes_a_web_socket_gives_its_slot_back() {
        // Seen to fail: with a `Busy` in the tunnel, a client held itself; with the stage left as it was, one who did not read
        // that it may go on had all the time there is.
        let gate = Gate::builder().max(1).reject().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stand_still = Span::of(PAUSE).less(Span::of(PAUSE));
        let pass = gate.enter().await.ok();
        let (client, task) = client();
        client.switch(client.begin(), Tunnel { upstream, early: Bytes::new(), stand_still, _pass: pass });
        assert_eq!(gate.look().in_use, 1);
        let mut task = pin!(task);
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "its time is over");
        let left = Rc::downgrade(&client);
        drop(client);
        assert!(left.upgrade().is_none(), "nobody has it any more");
        assert_eq!(gate.look().in_use, 0);
    }

    #[tokio::test]
    async fn the_end_of_a_body_that_nobody_wanted_says_nothing_of_the_next_one() {
        // Seen to fail: with one flag for both: the next answer may be lost to a reset.
        for is_next_unread in [false, true] {
            let (client, _task) = client();
            let service = service_fn(|request: Request<Incoming>| {
                client.forget(request.into_body());
                ready(Ok::<_, Infallible>(Response::new(String::new())))
            });
            let (mut near, far) = duplex(1024);
            let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(far), service));
            let mut serve = || {
                let cx = &mut Context::from_waker(Waker::noop());
                assert!(
                    connection.as_mut().poll(cx).is_pending(),
                    "it goes on until the other side hangs up"
                );
                client.poll_unwanted(cx);
            };
            near.write_all(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n").await.expect("there is room");
            serve();
            assert!(client.has_unread(), "it is still to come");
            if is_next_unread {
                client.leave_unread();
            }
            near.write_all(b"hello").await.expect("there is room");
            serve();
            assert_eq!(client.has_unread(), is_next_unread);
        }
    }

    #[test]
    fn a_client_and_its_counts_take_two_cache_lines() {
        // Seen to fail: with a header's value in it, as the address was one. Every connection that has just been answered has a
        // client.
        assert!(size_of::<Client>() + 2 * size_of::<usize>() <= 128, "{}", size_of::<Client>());
    }
}
