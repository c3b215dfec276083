//! H2: who a request comes from.

use axum::{Router, routing::get};
use flowgate::http::{ConcurrencyLimit, Identity, RateLimit, Scope};

use crate::kit::{ask_with, serve};

/// Answers once per client and hour.
async fn once_per_client(identity: Identity) -> std::net::SocketAddr {
    let rate = RateLimit::builder().rate(1, "1h").scope(Scope::Client).identity(identity).build().unwrap();
    serve(Router::new().route("/", get(|| async { "" })).layer(rate)).await
}

async fn statuses(server: std::net::SocketAddr, forwarded: [&str; 3]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for address in forwarded {
        statuses.push(ask_with(server, "/", &format!("x-forwarded-for: {address}\r\n")).await.status);
    }
    statuses
}

#[test]
fn h2_clients_without_a_way_to_tell_them_apart_are_a_build_error() {
    // Seen to fail: without the check in `FrontBuilder::build`, both layers are built and limit nobody.
    let message = "RC5003: option `scope` is `client`; accepted: `client` together with `identity`, which says how to \
                   tell clients apart: by the peer's address, through declared proxies, or by a function";
    let error = ConcurrencyLimit::builder().max_concurrent(1).scope(Scope::Client).build().unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = RateLimit::builder().rate(1, "1s").scope(Scope::Client).build().unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[tokio::test]
async fn h2_a_spoofed_address_is_the_same_client() {
    // Seen to fail: with `Source::Peer` reading X-Forwarded-For, each spoofed address is a new client.
    let server = once_per_client(Identity::peer()).await;
    assert_eq!(statuses(server, ["1.1.1.1", "2.2.2.2", "3.3.3.3"]).await, [200, 429, 429]);
}

#[tokio::test]
async fn h2_through_a_declared_proxy_clients_are_told_apart() {
    // Seen to fail: with `is_ours` always false, or with `hops` ignored, all three are the proxy.
    let server = once_per_client(Identity::trusted(["127.0.0.0/8".parse().unwrap()])).await;
    assert_eq!(statuses(server, ["1.1.1.1", "2.2.2.2", "6.6.6.6, 1.1.1.1"]).await, [200, 200, 429]);
    let server = once_per_client(Identity::hops(1)).await;
    assert_eq!(statuses(server, ["1.1.1.1", "2.2.2.2", "6.6.6.6, 1.1.1.1"]).await, [200, 200, 429]);
}
