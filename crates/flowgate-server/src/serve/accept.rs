//! The server's own connections.
//!
//! Owns how many there are at once, how long a connection may be open without a request or without taking its answer,
//! and how they end: a connection with a request under way gets its answer first.

use std::{io, net::SocketAddr, pin::pin, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use flowgate::{Gate, OptionError, Pass};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tower_service::Service as _;

use super::{
    linger::{Left, Lingering},
    run::until,
    stall::Stalling,
};

/// Nothing can be accepted, for want of files or memory: others need a moment to give some back.
const BREATHER: Duration = Duration::from_millis(100);

/// Where connections come from, and what they are bound by.
pub(super) struct Accepting {
    listener: TcpListener,
    places: Gate,
    /// How long the head of the next request may take, and how long a client may read nothing of what it is sent.
    idle_timeout: Duration,
}

impl Accepting {
    pub(super) fn new(listener: TcpListener, most: u32, idle_timeout: Duration) -> Result<Self, OptionError> {
        let places = Gate::builder().name("connections").max(most).queue(1).build()?;
        Ok(Accepting { listener, places, idle_timeout })
    }

    /// Serves until `closed`, and then until all are gone.
    ///
    /// Cancel safety: dropped, all connections are closed.
    pub(super) async fn serve(self, paths: Router, closed: watch::Receiver<bool>) {
        let mut serving = JoinSet::new();
        let mut closing = pin!(until(closed.clone()));
        loop {
            tokio::select! {
                () = &mut closing => break,
                Some(_) = serving.join_next() => {}
                accepted = self.accept() => match accepted {
                    Ok(accepted) => {
                        serving.spawn(connection(accepted, paths.clone(), self.idle_timeout, closed.clone()));
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(_) => sleep(BREATHER).await,
                },
            }
        }
        drop(self.listener);
        while serving.join_next().await.is_some() {}
    }

    /// The next connection. While there are as many as may be, it waits where the system keeps those not yet accepted.
    ///
    /// Cancel safety: dropped, none is lost.
    async fn accept(&self) -> io::Result<Accepted> {
        let place = self.places.enter().await.map_err(io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        // Nothing is lost without it but a little time.
        let _ = stream.set_nodelay(true);
        Ok(Accepted { stream, peer, _place: place })
    }
}

struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    _place: Pass,
}

/// Whether it says nothing of the next connection.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionReset)
}

/// One connection, to its end.
async fn connection(
    Accepted { stream, peer, _place }: Accepted,
    paths: Router,
    idle_timeout: Duration,
    closed: watch::Receiver<bool>,
) {
    let left = Left::default();
    let stream = Lingering::new(Stalling::new(stream, idle_timeout), left.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(|body| Body::new(left.watch(body)));
        request.extensions_mut().insert(ConnectInfo(peer));
        paths.clone().call(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(idle_timeout);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How it ended is its client's business.
    tokio::select! {
        _ = &mut serving => return,
        () = until(closed) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
