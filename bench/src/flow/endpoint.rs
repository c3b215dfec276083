//! Who gets the deliveries: a small service on hyper, in a thread of this process, that counts them.
//!
//! It is the same for ours, for the peer and for the bare client, so that what differs is what comes before it.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpSocket,
    runtime::Builder,
    task::{LocalSet, spawn_local},
};

const BACKLOG: u32 = 4_096;

/// The service, which lives as long as the process.
#[derive(Clone)]
pub(super) struct Endpoint {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    count: AtomicU64,
    /// When those came whose body is a number, by that number.
    arrivals: Mutex<Vec<(u64, Instant)>>,
}

impl Endpoint {
    pub(super) fn start() -> Result<Self, String> {
        let said = |error: std::io::Error| format!("the endpoint was not started: {error}");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(said)?;
        let listener = {
            let _inside = runtime.enter();
            let socket = TcpSocket::new_v4().map_err(said)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(said)?;
            socket.listen(BACKLOG).map_err(said)?
        };
        let endpoint = Endpoint { address: listener.local_addr().map_err(said)?, seen: Arc::default() };
        let seen = Arc::clone(&endpoint.seen);
        thread::spawn(move || {
            LocalSet::new().block_on(&runtime, async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    let seen = Arc::clone(&seen);
                    spawn_local(async move {
                        let service = service_fn(|request| answer(request, Arc::clone(&seen)));
                        // A client that hangs up is none of our business.
                        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            });
        });
        Ok(endpoint)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/job", self.address)
    }

    /// How many have come so far.
    pub(super) fn count(&self) -> u64 {
        self.seen.count.load(Ordering::Relaxed)
    }

    /// When those came that had a number, since this was asked last.
    pub(super) fn arrivals(&self) -> Vec<(u64, Instant)> {
        std::mem::take(&mut *self.seen.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn answer(request: Request<Incoming>, seen: Arc<Seen>) -> Result<Response<Full<Bytes>>, Infallible> {
    let came = Instant::now();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    seen.count.fetch_add(1, Ordering::Relaxed);
    if let Some(number) = std::str::from_utf8(&body).ok().and_then(|text| text.parse().ok()) {
        seen.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push((number, came));
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"done"))))
}
