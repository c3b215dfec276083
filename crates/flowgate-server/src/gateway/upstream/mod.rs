//! Upstreams: connections to them, and asking them.
//!
//! Reading order: [`Pool`] has the idle connections of one upstream; [`Line`] is one of them, HTTP/1.1, owned by the exchange
//! that uses it and polled by nobody else: [`sender`] is what goes out on it, [`head`] and [`chunks`] what comes back.
//! [`Streams`] are HTTP/2 connections, which exchanges share. Each worker has its own.

mod chunks;
mod head;
mod line;
mod pool;
mod sender;
mod streams;

pub(super) use line::{BodyError, Heard, Line};
pub(super) use pool::Pool;
pub(super) use sender::put_line;
use streams::Streams;
pub(super) use streams::{Stream, Unanswered};
