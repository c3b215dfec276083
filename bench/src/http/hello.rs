//! axum's hello, with and without layers.

use std::{error::Error, io, net::Ipv4Addr};

use axum::{Router, routing::get};
use flowgate::http::{ConcurrencyLimit, Scope};
use tokio::{net::TcpListener, runtime::Builder};
use tower::layer::layer_fn;

/// More than ever come at once: nobody is refused.
const MAX: u32 = 1_000;

/// What stands before the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layered {
    /// Nothing.
    Plain,
    /// A layer that does nothing: what axum charges for any.
    Empty,
    /// A limit of ours.
    Limit,
}

pub(super) fn serve(port: u16, layered: Layered) -> io::Result<()> {
    let app = Router::new().route("/", get(|| async { "Hello, World!" }));
    let app = match layered {
        Layered::Plain => app,
        Layered::Empty => app.layer(layer_fn(|inner| inner)),
        Layered::Limit => app.layer(limit().map_err(|error| io::Error::other(error.to_string()))?),
    };
    Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        axum::serve(listener, app).await
    })
}

fn limit() -> Result<ConcurrencyLimit, Box<dyn Error>> {
    Ok(ConcurrencyLimit::builder().max_concurrent(MAX).scope(Scope::Route).build()?)
}
