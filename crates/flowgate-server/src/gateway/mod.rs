//! The gateway: a reverse proxy that bounds what its routes let through.
//!
//! Reading order: [`service`] starts and ends it, [`worker`] is one of its threads (on one of the [`cores`]) and [`connection`] one client there ([`spare`] has the buffers). A
//! request is an [`exchange`]: [`asked`] and [`table`] (with [`router`] and [`path`]) find its route, [`limiter`] its pass,
//! [`forward`] asks an [`upstream`] ([`outgoing`] is what it gets), [`upload`] and [`relay`] are the two bodies, [`tunnel`] what a connection may become;
//! [`fault`] is what is told when that fails. [`watch`] and [`clock`] keep all deadlines ([`frames`] says when something is half said). [`reload`] and [`admin`] are for
//! operators. HTTP itself is hyper's, and limits are `flowgate`'s.

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
pub(crate) use service::{Failure, Handle};
