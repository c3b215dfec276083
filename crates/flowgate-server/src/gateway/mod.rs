//! The gateway: a reverse proxy that bounds what its routes let through.
//!
//! Reading order:
//!
//! - [`service`] starts and ends it. [`beside`] runs it beside the server.
//! - [`worker`] is one of its threads, on one of the [`cores`]. [`connection`] is one client there; [`spare`] has
//!   the buffers.
//! - [`plain`] reads and answers plain HTTP/1.1 requests by hand. Hyper reads all others, including malformed ones.
//! - [`exchange`] is one request. [`asked`] and [`table`] (with [`router`] and [`path`]) find its route,
//!   [`limiter`] its pass.
//! - [`forward`] calls an [`upstream`]; [`outgoing`] is the request that it gets. [`upload`] and [`relay`] are the
//!   two bodies, and [`tunnel`] is an upgraded connection. [`fault`] is the answer when the call fails.
//! - [`watch`] and [`clock`] keep all deadlines; [`frames`] detects an HTTP/2 client that has sent only part of a
//!   frame.
//! - [`reload`] and [`admin`] are for operators. The limits themselves are gates of the `flowgate` crate.

mod admin;
mod asked;
mod beside;
mod client;
mod clock;
mod connection;
mod cores;
mod exchange;
mod fault;
mod figures;
mod forward;
mod frames;
mod headers;
mod inbound;
mod io;
mod limiter;
mod outgoing;
mod path;
mod plain;
mod relay;
mod reload;
mod router;
mod service;
mod spare;
mod table;
mod tasks;
mod tls;
mod tunnel;
mod upload;
mod upstream;
mod view;
mod watch;
mod worker;

pub(crate) use admin::RELOAD;
pub(crate) use beside::Beside;
pub(crate) use reload::without_gateway;
pub(crate) use service::{Failure, Handle};
