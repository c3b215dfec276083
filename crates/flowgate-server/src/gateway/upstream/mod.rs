//! Upstreams: connections to them, and asking them.
//!
//! Reading order: [`Pool`] has the idle connections of one upstream; [`Line`] is one of them, HTTP/1.1, owned by the exchange
//! that uses it and polled by nobody else; [`Streams`] are HTTP/2 connections, which exchanges share. Each worker has its own.

mod bell;
mod line;
mod pool;
mod streams;

pub(super) use line::{Heard, Line};
pub(super) use pool::Pool;
pub(super) use streams::{Stream, Streams};
