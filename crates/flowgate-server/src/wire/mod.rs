//! HTTP/1.1 by hand, from the asking side: the gateway asks upstreams with it, and deliveries ask plain
//! endpoints.
//!
//! Reading order:
//!
//! - [`Line`] is one connection, owned by the exchange that asks on it and polled by nothing else.
//! - [`sender`] is what goes out on it; [`head`] and [`chunks`] are what comes back.
//!
//! Bytes that could be read in two ways are not read at all. Who keeps idle lines, and for how long, is for
//! their owners to decide.

mod chunks;
mod head;
mod line;
mod sender;

pub(crate) use head::lists;
pub(crate) use line::{BodyError, Heard, Line, Waits};
pub(crate) use sender::{Cut, Load, Whole, put_line};
