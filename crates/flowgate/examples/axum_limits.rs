//! An axum server with a budget for each route and fairness between clients, and two clients to try it.
//!
//! `cargo run --package flowgate --features axum --example axum_limits` sends it load and prints what came of it; with `--stay`
//! the server goes on, for a `curl` of your own.
#![allow(clippy::print_stdout, reason = "an example is for reading")]

use std::{
    collections::BTreeMap,
    error::Error,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use axum::{Router, routing::get};
use flowgate::http::{ConcurrencyLimit, Identity, Scope};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};

async fn report() -> &'static str {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "a slow report\n"
}

fn app() -> Result<Router, flowgate::OptionError> {
    // However many clients there are, no route has more than 8 requests in flight; two more may wait half a second.
    let per_route = ConcurrencyLimit::builder()
        .name("routes")
        .max_concurrent(8)
        .max_queue(2)
        .queue_timeout(Duration::from_millis(500))
        .scope(Scope::Route)
        .build()?;
    // And of these no client has more than 4: a greedy one cannot take them all.
    let per_client = ConcurrencyLimit::builder()
        .name("clients")
        .max_concurrent(4)
        .scope(Scope::Client)
        .identity(Identity::peer())
        .status(StatusCode::TOO_MANY_REQUESTS)
        .message("You have {in_flight} requests in flight already.")
        .on_reject(|rejected| println!("  turned away: {} ({})", rejected.key, rejected.reason))
        .build()?;
    Ok(Router::new()
        .route("/reports/{id}", get(report))
        .route("/", get(|| async { "hello\n" }))
        .layer(per_route)
        .layer(per_client))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let service = app()?.into_make_service_with_connect_info::<SocketAddr>();
    let serving = tokio::spawn(async move { axum::serve(listener, service).await });

    println!("A greedy client (127.0.0.1) asks for 6 reports at once, a modest one (127.0.0.2) for 2:");
    let greedy = clients(server, "127.0.0.1", 6);
    let modest = clients(server, "127.0.0.2", 2);
    let (greedy, modest) = tokio::join!(greedy, modest);
    println!("  greedy: {}", told(&greedy?));
    println!("  modest: {}", told(&modest?));

    if std::env::args().any(|argument| argument == "--stay") {
        println!("Still there, until Ctrl-C:  curl -i http://{server}/reports/7");
        serving.await??;
    }
    Ok(())
}

/// So many requests at once from one address; how many got which status.
async fn clients(
    server: SocketAddr,
    source: &str,
    count: usize,
) -> Result<BTreeMap<u16, usize>, Box<dyn Error + Send + Sync>> {
    let source: IpAddr = source.parse()?;
    let asked: Vec<_> = (0..count).map(|id| tokio::spawn(ask(server, source, id))).collect();
    let mut statuses = BTreeMap::new();
    for answer in asked {
        *statuses.entry(answer.await??).or_default() += 1;
    }
    Ok(statuses)
}

async fn ask(server: SocketAddr, source: IpAddr, id: usize) -> Result<u16, Box<dyn Error + Send + Sync>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    let stream = TokioIo::new(socket.connect(server).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request =
        Request::get(format!("/reports/{id}")).header("host", "example").body(Empty::<bytes::Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    response.into_body().collect().await?;
    Ok(status)
}

fn told(statuses: &BTreeMap<u16, usize>) -> String {
    let told: Vec<String> = statuses.iter().map(|(status, count)| format!("{count} x {status}")).collect();
    told.join(", ")
}
