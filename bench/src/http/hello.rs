//! axum's hello, with and without layers.

use std::{convert::Infallible, io, net::Ipv4Addr};

use axum::{
    Router, ServiceExt,
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue},
    response::Response,
    routing::get,
    serve::IncomingStream,
};
use flowgate::http::{ConcurrencyLimit, Scope};
use tokio::{net::TcpListener, runtime::Builder};
use tower::{Layer, Service, layer::layer_fn, util::MapResponseLayer};

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
    /// The same without its headers.
    Silent,
    /// The same around the whole router, with one budget for all: routes are not known there.
    Around,
}

pub(super) fn serve(port: u16, layered: Layered) -> io::Result<()> {
    let app = Router::new().route("/", get(|| async { "Hello, World!" }));
    let limit = |scope, has_headers| {
        let limit = ConcurrencyLimit::builder().max_concurrent(MAX).scope(scope).headers(has_headers).build();
        limit.map_err(|error| io::Error::other(error.to_string()))
    };
    let app = match layered {
        Layered::Plain => app,
        Layered::Empty => app.layer(layer_fn(|inner| inner)),
        Layered::Headers => app.layer(MapResponseLayer::new(write)),
        Layered::Limit => app.layer(limit(Scope::Route, true)?),
        Layered::Silent => app.layer(limit(Scope::Route, false)?),
        Layered::Around => {
            // What axum serves has bodies of its own kind.
            let around = MapResponseLayer::new(|response: Response<_>| response.map(Body::new));
            let app = around.layer(limit(Scope::Global, true)?.layer(app));
            return run(port, ServiceExt::<Request>::into_make_service(app));
        }
    };
    run(port, app)
}

fn run<M, S>(port: u16, app: M) -> io::Result<()>
where
    M: for<'a> Service<IncomingStream<'a, TcpListener>, Error = Infallible, Response = S> + Send + 'static,
    for<'a> <M as Service<IncomingStream<'a, TcpListener>>>::Future: Send,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
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
