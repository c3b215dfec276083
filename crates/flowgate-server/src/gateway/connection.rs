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
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    client::Client,
    clock::{Clock, Span},
    exchange::exchange,
    inbound::Inbound,
    io::{ClientIo, Socket, Wire},
    plain::{self, Left},
    relay::Out,
    tls::Protocol,
    watch::{Stage, Watch},
    worker::Worker,
};

const LARGEST_HEAD: usize = 32 << 10;
/// What is read ahead of a client, or waits for it, and no more: a slow reader of a large body must not cost its size.
const LARGEST_BUFFER: usize = 32 << 10;
const LARGEST_HEAD_LIST: u32 = 32 << 10;
const MOST_STREAMS: u32 = 128;
/// How long a body that nobody wants is read so that its sender reads our answer, and how long it may stand still.
const LONGEST_LINGER: Duration = Duration::from_secs(30);
const STANDSTILL: Duration = Duration::from_secs(5);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection to its end.
///
/// Cancel safety: dropped, the connection is closed and all that was under way on it is dropped.
pub(super) async fn serve(worker: Rc<Worker>, socket: Rc<Socket>, peer: SocketAddr, watch: Rc<Watch>) {
    let opening = open(&worker, &socket);
    let Some((wire, protocol)) = unless_draining(&worker, opening).await else { return };
    let is_tls = matches!(wire, Wire::Tls(_));
    let (head, idle) = {
        let table = &worker.view().table;
        (table.header_timeout, table.idle_timeout)
    };
    let mut io = ClientIo::new(wire, Bytes::new(), Rc::clone(&watch), head);
    let protocol = match protocol {
        Some(protocol) => protocol,
        None => match unless_draining(&worker, told(&mut io)).await {
            Some((protocol, early)) => {
                io = io.with_early(early);
                protocol
            }
            None => return,
        },
    };
    let client = Client::new(peer, is_tls, Rc::clone(&watch), idle);
    match protocol {
        Protocol::Http1 => serve_http1(&worker, &client, io, &watch).await,
        // Apart, so that the others need not make room for it.
        Protocol::Http2 => Box::pin(serve_http2(&worker, &client, io, &watch)).await,
    }
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
async fn told(io: &mut ClientIo) -> io::Result<(Protocol, Bytes)> {
    let mut early = BytesMut::with_capacity(2048);
    loop {
        let seen = early.len().min(PREFACE.len());
        if early[..seen] != PREFACE[..seen] {
            return Ok((Protocol::Http1, early.freeze()));
        }
        if seen == PREFACE.len() {
            return Ok((Protocol::Http2, early.freeze()));
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
        exchange(Rc::clone(&worker), Rc::clone(&client), request.map(Inbound::Stream))
    })
}

/// Serves requests until the connection ends. One that has nothing to do for a while comes to rest: what hyper keeps for it
/// is given back, and made anew for its next request. Most connections are idle most of the time.
async fn serve_http1(worker: &Rc<Worker>, client: &Rc<Client>, mut io: ClientIo, watch: &Watch) {
    loop {
        let plainly = Box::pin(plain::serve(worker, client, io, watch)).await;
        let (served, left) = match plainly {
            Left::Special(special) => {
                let (served, (left, unread)) = serve_while_busy(worker, client, special, watch).await;
                (served, left.with_early(unread))
            }
            Left::Resting(left) => (Served::Resting, left),
            Left::Ended(left) => (Served::Ended, left),
            Left::Gone => return,
        };
        io = left;
        match (served, client.tunnel.take()) {
            (Served::Resting, _) => match wake(worker, client, io).await {
                Some(woken) => io = woken,
                None => return,
            },
            (Served::Ended, Some(tunnel)) => return tunnel.run(io, watch).await,
            (Served::Ended, None) => return close(io, client, &worker.spawner.clock, watch).await,
            (Served::Failed, _) if client.has_unread() => {
                return close(io, client, &worker.spawner.clock, watch).await;
            }
            (Served::Failed, _) => return,
        }
    }
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
) -> (Served, (ClientIo, Bytes)) {
    let mut builder = http1::Builder::new();
    // Time is the watch's, with no timer for each request.
    builder.header_read_timeout(None).max_header_size(LARGEST_HEAD).max_buf_size(LARGEST_BUFFER);
    let mut connection = Box::new(builder.serve_connection(TokioIo::new(io), service(worker, client)));
    let mut is_told = false;
    let served = poll_fn(|cx| {
        if worker.is_draining() && !is_told {
            is_told = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        match Pin::new(&mut *connection).poll(cx) {
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
    (served, (parts.io.into_inner(), parts.read_buf))
}

/// Waits for the next request of a connection at rest; `None` if there is none.
async fn wake(worker: &Worker, client: &Client, mut io: ClientIo) -> Option<ClientIo> {
    client.rest();
    let _resting = worker.resting();
    let mut first = [0; 32];
    match unless_draining(worker, io.read(&mut first)).await {
        None | Some(0) => None,
        Some(read) => Some(io.with_early(Bytes::copy_from_slice(&first[..read]))),
    }
}

/// Closes a connection. Where something is left unread the other side may be sending still, and would lose our answer to a
/// reset if it were closed at once (RFC 9112, 9.6): it is told that no more comes from here, and heard out for a while.
async fn close(mut io: ClientIo, client: &Client, clock: &Clock, watch: &Watch) {
    watch.begin(Stage::Closing, Span::of(STANDSTILL));
    if io.shutdown().await.is_err() || !client.has_unread() {
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
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service(worker, client)));
    let mut is_told = false;
    let served = poll_fn(|cx: &mut Context<'_>| {
        if worker.is_draining() && !is_told {
            is_told = true;
            connection.as_mut().graceful_shutdown();
        }
        if watch.has_paused() {
            client.rest();
        }
        connection.as_mut().poll(cx)
    });
    // How it ended, its requests were told one by one.
    let _ = served.await;
}
