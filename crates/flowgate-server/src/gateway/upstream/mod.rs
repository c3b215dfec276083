//! Upstreams: connections to them, and asking them.
//!
//! [`Pool`] has the idle connections of one upstream. A [`Line`] is one of them, HTTP/1.1 by hand, owned by
//! the exchange that uses it: see [`crate::wire`]. [`Streams`] are HTTP/2 connections, which exchanges share.
//! Each worker has its own.

mod pool;
mod streams;

pub(super) use pool::{Line, Pool};
use streams::Streams;
pub(super) use streams::{Stream, Unanswered};
