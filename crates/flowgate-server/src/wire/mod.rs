//! HTTP/1.1 by hand, from the side of who asks: what the gateway asks upstreams with, and deliveries plain endpoints.
//!
//! Reading order: [`Line`] is one connection, owned by whoever asks on it and polled by nobody else; [`sender`] is what goes out
//! on it, [`head`] and [`chunks`] what comes back. What could be read in two ways is not read at all. Who keeps idle lines, and
//! for how long, is for their owners to decide.

mod chunks;
mod head;
mod line;
mod sender;

pub(crate) use head::lists;
pub(crate) use line::{BodyError, Heard, Line, Waits};
pub(crate) use sender::{Cut, Load, Whole, put_line};
