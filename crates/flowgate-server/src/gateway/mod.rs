//! The gateway: a reverse proxy that bounds what its routes let through.
//!
//! Reading order:
//!
//! - [`service`] starts and ends it. [`beside`] runs it beside the server.
//! - [`worker`] is one of its threads, on one of the [`cores`]. [`connection`] is one client there; [`spare`]
//!   has the buffers.
//! - [`plain`] reads and answers plain HTTP/1.1 requests by hand. All others are hyper's to read, whatever is
//!   wrong with them included.
//! - [`exchange`] is one request. [`asked`] and [`table`] (with [`router`] and [`path`]) find its route,
//!   [`limiter`] its pass.
//! - [`forward`] asks an [`upstream`]; [`outgoing`] is the request that it gets. [`upload`] and [`relay`] are
//!   the two bodies, and [`tunnel`] is what a connection may become. [`fault`] is the answer when asking
//!   fails.
//! - [`watch`] and [`clock`] keep all deadlines; [`frames`] says when an HTTP/2 client has said only half of
//!   something.
//! - [`reload`] and [`admin`] are for operators.
//!
//! Limits are `flowgate`'s.

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
