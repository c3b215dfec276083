//! Upstreams: connections and requests to them.
//!
//! [`Pool`] has the idle connections of one upstream. A [`Line`] is one of them, HTTP/1.1 by hand, owned by
//! the exchange that uses it: see [`crate::wire`]. [`Streams`] are HTTP/2 connections, which exchanges share; a
//! [`Stream`] is one exchange's part of one.
//! Each worker has its own.

mod pool;
mod stream;
mod streams;

pub(super) use pool::{Line, Pool};
pub(super) use stream::{Stream, Unanswered};
pub(super) use streams::LARGEST_WINDOW;
use streams::Streams;
