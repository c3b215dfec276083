//! Connections that become something else, and still count.
//!
//! A WebSocket is a request whose response is 101 and whose connection lives on in the handler's hands. The handler gets it
//! through an `OnUpgrade` in the request's extensions, of a type that only hyper can make. So the layer has hyper make
//! another one, over [`Gated`]: a small server connection is driven through a handshake in memory, and what it hands to
//! the handler afterwards reads and writes the true connection and carries the slot. Nothing is copied or spawned.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker, ready},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
    service::service_fn,
    upgrade::{OnUpgrade, Upgraded},
};

use super::body::Slot;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

const ASKED: &[u8] = b"GET / HTTP/1.1\r\nhost: gate\r\nconnection: upgrade\r\nupgrade: gate\r\n\r\n";
/// More steps than a handshake in memory ever takes.
const MOST_STEPS: usize = 16;

/// A connection that may become something else: if it does, [`Bridge::hold`] gives it the slot.
pub(crate) struct Bridge {
    shared: Arc<Shared>,
    /// Whether it was asked to be a tunnel (`CONNECT`), which any success grants.
    is_tunnel: bool,
}

#[derive(Default)]
struct Shared {
    slot: Mutex<Option<Slot>>,
    /// Whether the handshake is over: from here on, reads and writes are the handler's.
    is_open: AtomicBool,
}

/// Puts a bridge between the handler and the connection, where the request asks for another protocol.
pub(crate) fn bridge<B>(request: &mut Request<B>) -> Option<Bridge> {
    let outer = request.extensions_mut().remove::<OnUpgrade>()?;
    let shared = Arc::new(Shared::default());
    let inner = handshake(Gated {
        shared: Arc::clone(&shared),
        asked: ASKED,
        outer: Outer::Coming(outer, Arc::default()),
    })?;
    request.extensions_mut().insert(inner);
    Some(Bridge { shared, is_tunnel: request.method() == Method::CONNECT })
}

impl Bridge {
    /// Whether a response of this status means that the connection is something else from here on.
    pub(crate) fn is_crossed(&self, status: StatusCode) -> bool {
        status == StatusCode::SWITCHING_PROTOCOLS || (self.is_tunnel && status.is_success())
    }

    /// The connection holds the slot from now on, until whoever got it lets it go.
    pub(crate) fn hold(self, slot: Slot) {
        *lock(&self.shared.slot) = Some(slot);
    }
}

/// Has hyper make an `OnUpgrade` for this connection.
fn handshake(io: Gated) -> Option<OnUpgrade> {
    let shared = Arc::clone(&io.shared);
    let made = Arc::new(Mutex::new(None));
    let service = service_fn(|mut request: Request<Incoming>| {
        *lock(&made) = request.extensions_mut().remove::<OnUpgrade>();
        std::future::ready(Ok::<_, std::convert::Infallible>(switching()))
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    let connection = builder.header_read_timeout(None).serve_connection(io, service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut cx = Context::from_waker(Waker::noop());
    let is_done = (0..MOST_STEPS).any(|_| connection.as_mut().poll(&mut cx).is_ready());
    shared.is_open.store(true, Ordering::Release);
    let made = lock(&made).take();
    made.filter(|_| is_done)
}

fn switching() -> Response<Nothing> {
    let mut response = Response::new(Nothing);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("gate"));
    response
}

struct Nothing;

impl Body for Nothing {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

/// The connection as the handler gets it.
struct Gated {
    shared: Arc<Shared>,
    /// What is left to read of the handshake.
    asked: &'static [u8],
    outer: Outer,
}

enum Outer {
    Coming(OnUpgrade, Arc<Waiting>),
    Here(Upgraded),
    /// The client left before it had the response.
    Failed(Arc<hyper::Error>),
}

/// Who waits for the true connection: one who reads and one who writes, in two tasks if the handler likes. Hyper wakes
/// only whoever asked it last.
#[derive(Default)]
struct Waiting {
    wakers: Mutex<[Option<Waker>; 2]>,
}

#[derive(Clone, Copy)]
enum Half {
    Reads,
    Writes,
}

impl Waiting {
    fn note(&self, half: Half, waker: &Waker) {
        let waker = waker.clone();
        let spent = lock(&self.wakers)[half as usize].replace(waker);
        // Not before the lock is gone: it runs user code.
        drop(spent);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *lock(&self.wakers));
        wakers.into_iter().flatten().for_each(crate::gate::wake);
    }
}

impl Gated {
    fn is_open(&self) -> bool {
        self.shared.is_open.load(Ordering::Acquire)
    }

    /// The true connection, once the client has the response.
    fn poll_outer(&mut self, half: Half, cx: &Context<'_>) -> Poll<io::Result<Pin<&mut Upgraded>>> {
        if let Outer::Coming(coming, waiting) = &mut self.outer {
            waiting.note(half, cx.waker());
            let both = Waker::from(Arc::clone(waiting));
            // It is asked no more once it has answered: it would panic.
            self.outer = match ready!(Pin::new(coming).poll(&mut Context::from_waker(&both))) {
                Ok(here) => Outer::Here(here),
                Err(error) => Outer::Failed(Arc::new(error)),
            };
        }
        match &mut self.outer {
            Outer::Coming(..) => Poll::Pending,
            Outer::Here(here) => Poll::Ready(Ok(Pin::new(here))),
            Outer::Failed(error) => Poll::Ready(Err(io::Error::other(Arc::clone(error)))),
        }
    }
}

impl Read for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.asked.is_empty() {
            let (now, later) = self.asked.split_at(self.asked.len().min(buf.remaining()));
            buf.put_slice(now);
            self.asked = later;
            return Poll::Ready(Ok(()));
        }
        if !self.is_open() {
            return Poll::Pending;
        }
        ready!(self.poll_outer(Half::Reads, cx))?.poll_read(cx, buf)
    }
}

impl Write for Gated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.is_open() {
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(self.poll_outer(Half::Writes, cx))?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_open() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_outer(Half::Writes, cx))?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_open() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_outer(Half::Writes, cx))?.poll_shutdown(cx)
    }
}
