//! A hand-written HTTP/1.1 client: the gateway calls upstreams with it, and deliveries call plain endpoints.
//!
//! Reading order:
//! - [`Line`] is one connection, owned by the exchange that uses it and polled by nothing else.
//! - [`sender`] is what goes out on it; [`head`] and [`chunks`] are what comes back.
//! Bytes that could be read in two ways are rejected. The owners of idle lines decide how long to keep them.

mod chunks;
mod head;
mod line;
mod sender;

pub(crate) use head::lists;
pub(crate) use line::{BodyError, Heard, Line, Waits};
pub(crate) use sender::{Cut, Load, Whole, put_line};
