//! axum's hello, with and without layers.

use std::{error::Error, io, net::Ipv4Addr};

use axum::{
    Router,
    http::{HeaderName, HeaderValue},
    response::Response,
    routing::get,
};
use flowgate::http::{ConcurrencyLimit, Scope};
use tokio::{net::TcpListener, runtime::Builder};
use tower::{layer::layer_fn, util::MapResponseLayer};

/// More than ever come at once: nobody is refused.
const MAX: u32 = 1_000;

/// What stands before the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layered {
    /// Nothing.
    Plain,
    /// A layer that does nothing: what axum charges for any.
    Empty,
    /// A layer that writes as many headers as ours, and does nothing else.
    Headers,
    /// A limit of ours.
    Limit,
}

pub(super) fn serve(port: u16, layered: Layered) -> io::Result<()> {
    let app = Router::new().route("/", get(|| async { "Hello, World!" }));
    let app = match layered {
        Layered::Plain => app,
        Layered::Empty => app.layer(layer_fn(|inner| inner)),
        Layered::Headers => app.layer(MapResponseLayer::new(write)),
        Layered::Limit => app.layer(limit().map_err(|error| io::Error::other(error.to_string()))?),
    };
    Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        axum::serve(listener, app).await
    })
}

/// The headers that the limit writes, with texts that are there.
fn write(mut response: Response) -> Response {
    for (name, text) in [
        ("concurrency-limit", "1000"),
        ("concurrency-remaining", "936"),
        ("ratelimit-policy", "\"concurrency\";q=1000;qu=\"concurrent-requests\""),
        ("ratelimit", "\"concurrency\";r=936"),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(text));
    }
    response
}

fn limit() -> Result<ConcurrencyLimit, Box<dyn Error>> {
    Ok(ConcurrencyLimit::builder().max_concurrent(MAX).scope(Scope::Route).build()?)
}
