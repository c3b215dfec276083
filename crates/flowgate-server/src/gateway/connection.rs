//! One client connection, from the handshake to its end.
//!
//! Owns which protocol is spoken and how a connection ends: politely where it can, so that the last answer arrives.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use http::{Request, Response, Version};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    client::Client,
    clock::Span,
    exchange::exchange,
    inbound::Inbound,
    io::{ClientIo, Socket, Wire},
    plain::{self, Left},
    relay::Out,
    tls::Protocol,
    upstream::LARGEST_WINDOW,
    watch::{Stage, Watch},
    worker::{Resting, Worker},
};

const LARGEST_HEAD: usize = 32 << 10;
/// What is read ahead of a client, or waits for it, and no more: a slow reader of a large body must not cost its size.
const LARGEST_BUFFER: usize = 32 << 10;
const LARGEST_HEAD_LIST: u32 = 32 << 10;
const MOST_STREAMS: u32 = 128;
/// What nobody reads of one stream is to hold back no other. Nor is it larger: h2 has as many small frames of a client wait as
/// this may be worth, and each costs as much as hundreds of bytes.
const LARGEST_WINDOW_OF_ALL: u32 = MOST_STREAMS * LARGEST_WINDOW;
/// How long a body that nobody wants is read so that its sender reads our answer, and how long it may stand still.
const LONGEST_LINGER: Duration = Duration::from_secs(30);
const STANDSTILL: Duration = Duration::from_secs(5);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client that is being attended to, until all it said is answered; `None` when the connection has ended.
type Attending = Pin<Box<dyn Future<Output = Option<Answered>>>>;
type Answered = (ClientIo, Rc<Client>);

/// A connection, served to its end. Between requests it is what stands here and no more: all that answering takes is behind a
/// pointer, and given back with the answer. Most connections are idle most of the time.
///
/// Written by hand: an `async` block keeps what it borrows beside what it owns, and would take half as much again.
///
/// Cancel safety: dropped, the connection is closed and all that was under way on it is dropped.
pub(super) struct Connection {
    worker: Rc<Worker>,
    state: State,
}

enum State {
    /// Something was said, and is being answered.
    Attended(Attending),
    /// Nothing is under way.
    Quiet(Quiet),
    /// It has ended.
    Over,
}

/// A connection on which nothing is under way.
struct Quiet {
    io: ClientIo,
    /// Whom it belongs to, until it comes to rest.
    client: Option<Rc<Client>>,
    resting: Option<Resting>,
}

impl Connection {
    /// One that was just accepted.
    pub(super) fn new(worker: Rc<Worker>, socket: Rc<Socket>, peer: SocketAddr, watch: Rc<Watch>) -> Self {
        let state = State::Attended(Box::pin(welcome(Rc::clone(&worker), socket, peer, watch)));
        Connection { worker, state }
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Connection { worker, state } = &mut *self;
        loop {
            *state = match state {
                State::Attended(attending) => match ready!(attending.as_mut().poll(cx)) {
                    Some((io, client)) => State::Quiet(Quiet { io, client: Some(client), resting: None }),
                    None => State::Over,
                },
                State::Quiet(quiet) => match ready!(quiet.poll_listen(worker, cx)) {
                    Heard::Silence => {
                        quiet.rest(worker);
                        continue;
                    }
                    heard => match std::mem::replace(state, State::Over) {
                        State::Quiet(quiet) => quiet.end(worker, heard).map_or(State::Over, State::Attended),
                        other => other,
                    },
                },
                State::Over => return Poll::Ready(()),
            }
        }
    }
}

impl Quiet {
    /// Waits for the client to say something. There is no buffer until it does.
    fn poll_listen(&mut self, worker: &Worker, cx: &mut Context<'_>) -> Poll<Heard> {
        if self.io.may_have_words(cx) {
            let mut words = worker.spare.take();
            let read = pin!(self.io.read_buf(&mut words)).poll(cx);
            match read {
                Poll::Ready(Ok(1..)) => return Poll::Ready(Heard::Words(words)),
                Poll::Ready(_) => return Poll::Ready(Heard::End),
                Poll::Pending => worker.spare.give(words),
            }
        }
        if worker.is_draining() {
            Poll::Ready(Heard::End)
        } else if self.io.watch.has_paused() {
            Poll::Ready(Heard::Silence)
        } else {
            Poll::Pending
        }
    }

    /// Keeps no more than it takes to listen.
    fn rest(&mut self, worker: &Worker) {
        if let Some(client) = self.client.take() {
            client.rest();
        }
        self.resting = Some(worker.resting());
    }

    /// Something was heard: what is to be done about it, if there is anybody to do it for.
    fn end(self, worker: &Rc<Worker>, heard: Heard) -> Option<Attending> {
        let Quiet { io, client, resting } = self;
        drop(resting);
        let (worker, watch) = (Rc::clone(worker), Rc::clone(&io.watch));
        match heard {
            Heard::Words(words) => {
                // The system knows who it is as well, for as long as the connection lives.
                let known = || Some(worker.client(io.peer().ok()?, &io, &watch));
                let client = client.or_else(known)?;
                Some(in_place(|| attend(worker, client, (io, words), watch)))
            }
            Heard::Silence | Heard::End => {
                let has_unread = client.is_some_and(|client| client.has_unread());
                Some(Box::pin(dismiss(worker, has_unread, io, watch)))
            }
        }
    }
}

/// A future behind a pointer, made where it is to stand: a large one would be copied there for each request.
pub(super) fn in_place<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// Finds out what is spoken, and speaks it.
async fn welcome(
    worker: Rc<Worker>,
    socket: Rc<Socket>,
    peer: SocketAddr,
    watch: Rc<Watch>,
) -> Option<Answered> {
    let Begun { io, protocol, input } = Box::pin(begin(&worker, socket, &watch)).await?;
    let client = worker.client(peer, &io, &watch);
    match protocol {
        Protocol::Http1 => attend(worker, client, (io, input), watch).await,
        Protocol::Http2 => {
            let io = io.with_early(input.freeze()).of_frames();
            Box::pin(serve_http2(&worker, &client, io, &watch)).await;
            None
        }
    }
}

/// Answers what is said in HTTP/1.1, until there is no more to answer: then the connection is to be listened to again, unless it
/// has ended.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
fn attend(
    worker: Rc<Worker>,
    client: Rc<Client>,
    (mut io, mut input): (ClientIo, BytesMut),
    watch: Rc<Watch>,
) -> impl Future<Output = Option<Answered>> {
    async move {
        let (served, io) = match plain::serve(&worker, &client, (&mut io, &mut input), &watch).await {
            Left::Quiet => return Some((io, client)),
            Left::Gone => return None,
            Left::Ended => (Served::Ended, io),
            Left::Special => {
                // Apart, so that plain ones need not make room for it.
                let io = io.with_early(input.freeze());
                Box::pin(serve_while_busy(&worker, &client, io, &watch)).await
            }
        };
        match (served, client.take_tunnel()) {
            (Served::Resting, _) => return Some((io, client)),
            (Served::Ended, Some(tunnel)) => Box::pin(tunnel.run(io, &watch)).await,
            (Served::Failed, _) if !client.has_unread() => {}
            (Served::Ended | Served::Failed, _) => {
                Box::pin(close(io, client.has_unread(), &worker, &watch)).await;
            }
        }
        None
    }
}

/// Ends a connection on which nothing is under way.
async fn dismiss(worker: Rc<Worker>, has_unread: bool, io: ClientIo, watch: Rc<Watch>) -> Option<Answered> {
    close(io, has_unread, &worker, &watch).await;
    None
}

/// A connection on which something was said.
struct Begun {
    io: ClientIo,
    protocol: Protocol,
    input: BytesMut,
}

/// The handshake, and the first bytes; `None` if there is nobody to serve.
async fn begin(worker: &Worker, socket: Rc<Socket>, watch: &Rc<Watch>) -> Option<Begun> {
    let opening = open(worker, &socket);
    let (wire, protocol) = unless_draining(worker, opening).await?;
    let mut io = ClientIo::new(wire, Rc::clone(watch), worker.view().table.header_timeout);
    let (protocol, input) = match protocol {
        Some(protocol) => (protocol, BytesMut::new()),
        None => unless_draining(worker, told(&mut io, worker.spare.take())).await?,
    };
    Some(Begun { io, protocol, input })
}

/// What a client that nothing is under way for was heard to say.
enum Heard {
    Words(BytesMut),
    /// Nothing for a while: the connection comes to rest.
    Silence,
    /// Nothing any more, or nothing that would be answered.
    End,
}

/// What the future comes to; `None` where it failed, or nothing new is begun any more.
async fn unless_draining<T>(worker: &Worker, future: impl Future<Output = io::Result<T>>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(
        |cx| {
            if worker.is_draining() { Poll::Ready(None) } else { future.as_mut().poll(cx).map(Result::ok) }
        },
    )
    .await
}

/// The TLS handshake, where there is one; with the protocol, if that says it.
async fn open(worker: &Worker, socket: &Rc<Socket>) -> io::Result<(Wire, Option<Protocol>)> {
    match worker.tls() {
        None => Ok((Wire::Plain(socket.io()), None)),
        Some(tls) => {
            let (stream, protocol) = tls.accept(socket.io()).await?;
            Ok((Wire::Tls(Box::new(stream)), Some(protocol)))
        }
    }
}

/// The protocol that the first bytes tell, and those bytes.
async fn told(io: &mut ClientIo, mut early: BytesMut) -> io::Result<(Protocol, BytesMut)> {
    loop {
        let seen = early.len().min(PREFACE.len());
        if early[..seen] != PREFACE[..seen] {
            return Ok((Protocol::Http1, early));
        }
        if seen == PREFACE.len() {
            return Ok((Protocol::Http2, early));
        }
        if io.read_buf(&mut early).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn service(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
) -> impl Service<Request<Incoming>, Response = Response<Out>, Error = Infallible, Future: 'static> + use<> {
    let (worker, client) = (Rc::clone(worker), Rc::clone(client));
    service_fn(move |request: Request<Incoming>| {
        let inbound = if request.version() == Version::HTTP_2 { Inbound::Framed } else { Inbound::Stream };
        exchange(Rc::clone(&worker), Rc::clone(&client), request.map(inbound))
    })
}

enum Served {
    Ended,
    Failed,
    /// Nothing was under way for a while.
    Resting,
}

async fn serve_while_busy(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    io: ClientIo,
    watch: &Watch,
) -> (Served, ClientIo) {
    let mut builder = http1::Builder::new();
    // Time is the watch's, with no timer for each request.
    builder.header_read_timeout(None).max_header_size(LARGEST_HEAD).max_buf_size(LARGEST_BUFFER);
    let mut connection = builder.serve_connection(TokioIo::new(io), service(worker, client));
    let mut is_told = false;
    let served = poll_fn(|cx| {
        if worker.is_draining() && !is_told {
            is_told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let polled = Pin::new(&mut connection).poll(cx);
        if polled.is_pending() {
            client.poll_unwanted(cx);
        }
        match polled {
            Poll::Ready(Ok(())) => Poll::Ready(Served::Ended),
            Poll::Ready(Err(_)) => Poll::Ready(Served::Failed),
            Poll::Pending if !watch.has_paused() || is_told => Poll::Pending,
            // What was said is not all sent yet: it stays as it is, and has as long as an idle one.
            Poll::Pending if watch.has_unsent.get() => {
                client.rest();
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(Served::Resting),
        }
    })
    .await;
    let parts = connection.into_parts();
    (served, parts.io.into_inner().with_early(parts.read_buf))
}

/// Closes a connection. Where something is left unread the other side may be sending still, and would lose our answer to a
/// reset if it were closed at once (RFC 9112, 9.6): it is told that no more comes from here, and heard out for a while.
async fn close(mut io: ClientIo, has_unread: bool, worker: &Worker, watch: &Watch) {
    let clock = &worker.spawner.clock;
    watch.begin(Stage::Closing, Span::of(STANDSTILL));
    if io.shutdown().await.is_err() || !has_unread {
        return;
    }
    let deadline = clock.after(Span::of(LONGEST_LINGER));
    let mut unwanted = BytesMut::with_capacity(16 << 10);
    while let Ok(1..) = io.read_buf(&mut unwanted).await {
        unwanted.clear();
        if clock.now() >= deadline {
            return;
        }
    }
}

async fn serve_http2(worker: &Rc<Worker>, client: &Rc<Client>, io: ClientIo, watch: &Watch) {
    let mut builder = http2::Builder::new(worker.spawner.clone());
    builder.max_concurrent_streams(MOST_STREAMS).max_header_list_size(LARGEST_HEAD_LIST);
    builder.initial_stream_window_size(LARGEST_WINDOW).initial_connection_window_size(LARGEST_WINDOW_OF_ALL);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service(worker, client)));
    // Its first request may come as late as any other.
    client.never_rest();
    let mut is_told = false;
    let served = poll_fn(|cx: &mut Context<'_>| {
        let has_idled = watch.has_paused();
        if (worker.is_draining() || has_idled) && !is_told {
            is_told = true;
            connection.as_mut().graceful_shutdown();
        }
        if has_idled {
            // It was told: what it asked for before it heard of that is answered still.
            watch.begin(Stage::Head, Span::of(STANDSTILL));
        }
        connection.as_mut().poll(cx)
    });
    // How it ended, its requests were told one by one.
    let _ = served.await;
}

#[cfg(test)]
mod tests {
    use super::{
        super::{watch::Watched, worker::Place},
        *,
    };

    #[test]
    fn what_answers_a_plain_request_takes_less_than_a_kilobyte() {
        // The allocator has more to do for more. Seen to fail: with what asks the upstream kept in it, not behind a pointer.
        let size = size_of_made(attend);
        assert!(size <= 1024, "{size}");
    }

    fn size_of_made<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_at_rest_takes_little() {
        // The runtime adds 104 bytes of its own and wants a place at a multiple of 128, which the allocator has for 256 bytes and
        // then for 512. Seen to fail: with the address of the client in it.
        let size = size_of::<Watched<Connection, Place>>();
        assert!(size <= 256 - 104, "{size}");
    }
}
