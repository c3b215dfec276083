//! Who publishes: requests over connections that stay open, a fixed number at once.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The token that `--dev` accepts.
const TOKEN: &str = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

/// A request to be sent again and again.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

impl Ask {
    pub(super) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Ask { method: Method::POST, path: path.into(), headers: Vec::new(), body: body.into() }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Ask { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A connection to a server.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Display| format!("no connection to {address}: {error}");
        let stream = TcpStream::connect(address).await.map_err(|error| said(&error))?;
        stream.set_nodelay(true).map_err(|error| said(&error))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| said(&error))?;
        tokio::spawn(connection);
        Ok(Connection { sender, host: address.to_string() })
    }

    /// The body of an answer that is a success.
    pub(super) async fn ask(&mut self, ask: &Ask) -> Result<Bytes, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{} {}: {error}", ask.method, ask.path);
        let mut request = Request::builder().method(&ask.method).uri(&ask.path).header("host", &self.host);
        request = request.header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(ask.body.clone())).map_err(|error| failed(&error))?;
        self.sender.ready().await.map_err(|error| failed(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(failed(&format!("{status} {}", String::from_utf8_lossy(&body))))
        }
    }

    pub(super) async fn json(&mut self, ask: &Ask) -> Result<Value, String> {
        let body = self.ask(ask).await?;
        serde_json::from_slice(&body).map_err(|error| format!("{}: {error}", ask.path))
    }
}

/// Sends so many requests, `at_once` of them at a time; each is made from its number.
pub(super) async fn send_all(
    address: SocketAddr,
    at_once: u32,
    count: u32,
    make: impl Fn(u32) -> Ask + Send + Sync + 'static,
) -> Result<(), String> {
    let (next, make) = (Arc::new(AtomicU32::new(0)), Arc::new(make));
    let senders: Vec<_> = (0..at_once)
        .map(|_| {
            let (next, make) = (Arc::clone(&next), Arc::clone(&make));
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await?;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<(), String>(());
                    }
                    connection.ask(&make(number)).await?;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Sends one every `interval`, whatever the answers take, and gives when each was sent and how long its answer took.
pub(super) async fn send_paced(
    address: SocketAddr,
    interval: Duration,
    count: u32,
    make: impl Fn(u32) -> Ask,
) -> Result<Vec<(Instant, Duration)>, String> {
    let mut connection = Connection::open(address).await?;
    let mut ticks = tokio::time::interval(interval);
    let mut sent = Vec::with_capacity(count as usize);
    for number in 0..count {
        let ask = make(number);
        ticks.tick().await;
        let start = Instant::now();
        connection.ask(&ask).await?;
        sent.push((start, start.elapsed()));
    }
    Ok(sent)
}
