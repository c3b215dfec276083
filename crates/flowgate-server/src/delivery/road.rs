//! The way to an endpoint: straight, or by a proxy.
//!
//! Owns what is different by a proxy: https goes through a tunnel (CONNECT), so the proxy sees no more of it than the host; http
//! is asked of the proxy itself, with the whole URL. It decides nothing about who may be reached.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector, proxy::Tunnel},
    rt::TokioIo,
};
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use super::{egress::causes, resolver::Resolver};
use crate::config::Proxy;

/// How long a connection may take, and the proxy's word that there is one.
const CONNECT: Duration = Duration::from_secs(30);

/// Makes connections.
#[derive(Clone, Debug)]
pub(super) struct Road {
    straight: HttpConnector<Resolver>,
    by: Option<(Proxy, Tunnel<HttpConnector<Resolver>>)>,
}

impl Road {
    /// The way by this proxy, if there is one.
    pub(super) fn new(denies_private: bool, proxy: Option<Proxy>) -> Self {
        // The proxy itself may be where it likes; whom it connects to is checked by name, and by itself.
        let resolver = Resolver { denies_private: denies_private && proxy.is_none() };
        let mut straight = HttpConnector::new_with_resolver(resolver);
        straight.enforce_http(false);
        straight.set_nodelay(true);
        straight.set_connect_timeout(Some(CONNECT));
        let by = proxy.map(|proxy| {
            let tunnel = Tunnel::new(proxy.uri().clone(), straight.clone());
            let tunnel = match proxy.credentials() {
                Some(credentials) => tunnel.with_auth(credentials.clone()),
                None => tunnel,
            };
            (proxy, tunnel)
        });
        Road { straight, by }
    }
}

type Made = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

impl Service<Uri> for Road {
    type Response = Wire;
    type Error = io::Error;
    type Future = Made;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Made {
        let Some((proxy, tunnel)) = &mut self.by else {
            let made = self.straight.call(to);
            return Box::pin(async move {
                let io = made.await.map_err(io::Error::other)?;
                Ok(Wire { io, is_to_proxy: false })
            });
        };
        let name = proxy.to_string();
        let failed = move |error: &dyn std::error::Error| {
            io::Error::other(format!("through the proxy {name}: {}", causes(error)))
        };
        if to.scheme() == Some(&Scheme::HTTPS) {
            let made = timeout(CONNECT, tunnel.call(to));
            return Box::pin(async move {
                let io = made.await.map_err(|late| failed(&late))?.map_err(|error| failed(&error))?;
                Ok(Wire { io, is_to_proxy: false })
            });
        }
        let made = self.straight.call(proxy.uri().clone());
        Box::pin(async move {
            let io = made.await.map_err(|error| failed(&error))?;
            Ok(Wire { io, is_to_proxy: true })
        })
    }
}

/// A connection, and whether who answers on it is the proxy: then it is asked with whole URLs.
#[derive(Debug)]
pub(super) struct Wire {
    io: TokioIo<TcpStream>,
    is_to_proxy: bool,
}

impl Wire {
    /// The bare connection.
    pub(super) fn into_stream(self) -> TcpStream {
        self.io.into_inner()
    }

    fn io(self: Pin<&mut Self>) -> Pin<&mut TokioIo<TcpStream>> {
        Pin::new(&mut self.get_mut().io)
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.is_to_proxy)
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.io().poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write_vectored(context, parts)
    }
}
