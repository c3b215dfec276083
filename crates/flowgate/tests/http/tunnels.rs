//! H3: connections that become tunnels (`CONNECT`), on HTTP/1 and HTTP/2.

use std::{convert::Infallible, net::SocketAddr};

use axum::{Router, body::Body, extract::Request, response::Response};
use flowgate::http::{ConcurrencyLimit, ReleaseAt};
use flowgate_testkit::Driven;
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
};
use tower::{Layer, service_fn};

use crate::kit::{Client, endless, in_use, limit, serve, soon};

/// Echoes what comes through the tunnel until the client has no more to say; then says so, and waits to be let go.
fn tunnel(request: Request, let_go: std::sync::Arc<Notify>) -> Response {
    tokio::spawn(async move {
        let mut stream = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
        let (mut reader, mut writer) = split(&mut stream);
        let _ = copy(&mut reader, &mut writer).await;
        let _ = stream.shutdown().await;
        let_go.notified().await;
    });
    Response::new(Body::empty())
}

async fn served(limit: &ConcurrencyLimit) -> (SocketAddr, std::sync::Arc<Notify>) {
    let let_go = std::sync::Arc::new(Notify::new());
    let wait = let_go.clone();
    let handler = move |request: Request| async move { tunnel(request, wait) };
    (serve(Router::new().fallback(handler).layer(limit.clone())).await, let_go)
}

async fn connect(server: SocketAddr) -> Client {
    let mut client = Client::connect(server).await;
    client.write(b"CONNECT there:80 HTTP/1.1\r\nhost: there:80\r\n\r\n").await;
    client
}

#[tokio::test]
async fn h3_a_tunnel_counts_until_it_is_closed() {
    // Seen to fail: with `is_tunnel` always false the slot is free at once; without `poll_shutdown` passed on, the client is
    // never told that no more will come.
    let limit = limit(1, |options| options);
    let (server, let_go) = served(&limit).await;
    let mut client = connect(server).await;
    assert_eq!(client.head().await.status, 200);
    client.write(b"one\n").await;
    assert_eq!(client.line().await, "one");
    assert_eq!(limit.look().in_use, 1);
    assert_eq!(connect(server).await.answer().await.status, 503);
    client.write(b"two\n").await;
    assert_eq!(client.line().await, "two");
    client.finish().await;
    assert!(client.is_closed().await, "the server's half was closed as well");
    assert_eq!(limit.look().in_use, 1, "the handler still has it");
    let_go.notify_one();
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn h3_a_tunnel_that_is_not_granted_is_an_ordinary_request() {
    // Seen to fail: with a tunnel crossed by any status, the slot is not held by the body.
    let limit = limit(1, |options| options);
    let (sender, body) = endless();
    let once = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let denied = move || async move { (http::StatusCode::FORBIDDEN, once.lock().unwrap().take().unwrap()) };
    let server = serve(Router::new().fallback(denied).layer(limit.clone())).await;
    let mut client = connect(server).await;
    assert_eq!(client.head().await.status, 403);
    assert_eq!(limit.look().in_use, 1);
    drop(sender);
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn h3_a_tunnel_is_as_free_as_any_where_slots_end_at_the_head() {
    // Seen to fail: with `release_at` ignored, the slot is taken for as long as the tunnel lives.
    let limit = limit(1, |options| options.release_at(ReleaseAt::Headers));
    let (server, _let_go) = served(&limit).await;
    let mut client = connect(server).await;
    assert_eq!(client.head().await.status, 200);
    client.write(b"one\n").await;
    assert_eq!(client.line().await, "one");
    assert_eq!(limit.look().in_use, 0);
}

#[tokio::test]
async fn h3_on_http2_a_stream_counts_by_itself_and_so_does_its_tunnel() {
    // Seen to fail: with `is_tunnel` always false, and with the pass forgotten by a body that is dropped (the stream is reset).
    let limit = limit(1, |options| options);
    let let_go = std::sync::Arc::new(Notify::new());
    let wait = let_go.clone();
    let handler = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let wait = wait.clone();
        async move {
            let is_tunnel = request.method() == http::Method::CONNECT;
            let endless = Body::from_stream(futures_util::stream::pending::<Result<&str, Infallible>>());
            let response = || tunnel(request.map(Body::new), wait);
            Ok::<_, Infallible>(if is_tunnel { response() } else { Response::new(endless) })
        }
    });
    let service = TowerToHyperService::new(limit.layer(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let stream = TokioIo::new(listener.accept().await.unwrap().0);
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
    });
    let stream = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let ask = |method: &str| {
        let request = http::Request::builder().method(method).uri("http://there:80");
        let mut sender = sender.clone();
        soon(async move {
            sender.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap()
        })
    };
    let first = ask("GET").await;
    assert_eq!((first.status(), limit.look().in_use), (http::StatusCode::OK, 1));
    assert_eq!(ask("GET").await.status(), 503);
    assert_eq!(ask("CONNECT").await.status(), 503);
    drop(first);
    in_use(&limit, 0).await;
    let mut tunnel = TokioIo::new(soon(hyper::upgrade::on(ask("CONNECT").await)).await.unwrap());
    tunnel.write_all(b"one").await.unwrap();
    let mut echo = [0; 3];
    soon(tunnel.read_exact(&mut echo)).await.unwrap();
    assert_eq!((&echo, limit.look().in_use), (b"one", 1));
    drop(tunnel);
    let_go.notify_one();
    in_use(&limit, 0).await;
}

/// A tunnel that its handler has, and whose client has no answer yet.
struct Early {
    client: DuplexStream,
    /// The server's end of the connection, which moves when it is polled.
    connection: Driven<'static, ()>,
    tunnel: TokioIo<Upgraded>,
    /// Has the handler answer.
    answer: oneshot::Sender<()>,
}

async fn early(limit: &ConcurrencyLimit) -> Early {
    let (mut client, server) = duplex(1_024);
    let (give, mut given) = tokio::sync::mpsc::unbounded_channel();
    let (answer, go) = oneshot::channel::<()>();
    let go = std::sync::Arc::new(std::sync::Mutex::new(Some(go)));
    let handler = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        give.send(hyper::upgrade::on(request)).unwrap();
        let go = go.lock().unwrap().take().unwrap();
        async move {
            go.await.unwrap();
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let service = TowerToHyperService::new(limit.layer(handler));
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
    let served = served.with_upgrades();
    let mut connection = Driven::new(async move { served.await.unwrap() });
    client.write_all(b"CONNECT there:80 HTTP/1.1\r\nhost: there:80\r\n\r\n").await.unwrap();
    assert!(connection.poll().is_none());
    let tunnel = TokioIo::new(given.recv().await.unwrap().await.unwrap());
    Early { client, connection, tunnel, answer }
}

#[tokio::test]
async fn h3_who_reads_and_who_writes_both_hear_that_a_tunnel_is_open() {
    // Seen to fail: with the connection asked by the waker of whoever polled last, the other one was never woken.
    for reads_first in [true, false] {
        let limit = limit(1, |options| options);
        let Early { mut client, mut connection, tunnel, answer } = early(&limit).await;
        let (mut reader, mut writer) = split(tunnel);
        let mut read = Driven::new(async move { reader.read_u8().await.unwrap() });
        let mut write = Driven::new(async move { writer.write_all(b"hello").await.unwrap() });
        if reads_first {
            assert!(read.poll().is_none() && write.poll().is_none());
        } else {
            assert!(write.poll().is_none() && read.poll().is_none());
        }
        client.write_all(b"!").await.unwrap();
        answer.send(()).unwrap();
        connection.poll();
        write.ready();
        assert_eq!(read.ready(), b'!');
    }
}

#[tokio::test]
async fn h3_a_tunnel_whose_client_left_before_it_was_open_fails_whenever_it_is_asked() {
    // Seen to fail: with the end of the wait not remembered, the second question panics: "called after complete".
    let limit = limit(1, |options| options);
    let Early { connection, mut tunnel, .. } = early(&limit).await;
    let mut read = Driven::pending(tunnel.read_u8());
    drop(connection);
    let error = read.ready().unwrap_err();
    drop(read);
    let told = error.to_string();
    assert!(told.contains("operation was canceled"), "{told}");
    assert_eq!(tunnel.write_all(b"hello").await.unwrap_err().to_string(), told);
    assert_eq!(tunnel.shutdown().await.unwrap_err().to_string(), told);
    assert_eq!(tunnel.read_u8().await.unwrap_err().to_string(), told);
    drop(tunnel);
    assert_eq!(limit.look().in_use, 0);
}
