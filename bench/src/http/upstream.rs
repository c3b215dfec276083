//! The service behind the proxies: a small one on hyper, in a thread of its own process.
//!
//! It answers at once with a short document; `/v1/hold` never answers, and `/v1/big` has a long body.

use std::{convert::Infallible, future::Future, io, net::Ipv4Addr, rc::Rc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpSocket,
    runtime::Builder,
    task::{LocalSet, spawn_local},
};

/// Where nobody ever gets an answer.
pub(super) const HOLD: &str = "/v1/hold";
/// Where the body is long.
pub(super) const BIG: &str = "/v1/big";

const DOCUMENT: &[u8] =
    br#"{"status":"success","data":{"id":"4f1c2b7e-9f3a-4a1e-8a77-0c5d1e2f3a4b","name":"Ada Lovelace","ok":true}}"#;
/// More than the sockets on the way hold.
const LONG: usize = 1 << 20;
const BACKLOG: u32 = 4_096;

pub(super) fn serve(port: u16) -> io::Result<()> {
    let long = Bytes::from(vec![b'.'; LONG]);
    serve_with(port, move |request| {
        let long = long.clone();
        async move {
            match request.uri().path() {
                HOLD => std::future::pending().await,
                BIG => long,
                _ => Bytes::from_static(DOCUMENT),
            }
        }
    })
}

/// Serves the bodies that `answer` gives.
pub(super) fn serve_with<F>(port: u16, answer: impl Fn(Request<Incoming>) -> F + 'static) -> io::Result<()>
where
    F: Future<Output = Bytes> + 'static,
{
    let answer = Rc::new(answer);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let listener = socket.listen(BACKLOG)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = Rc::clone(&answer);
            spawn_local(async move {
                let service = service_fn(|request| {
                    let body = answer(request);
                    async { Ok::<_, Infallible>(document(body.await)) }
                });
                // A proxy that hangs up is none of our business.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

fn document(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
