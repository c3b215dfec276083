//! Plain requests, served by hand.
//!
//! Most requests are plain: HTTP/1.1, nothing special about the connection, and a body that came with the
//! head, if any. A general server is the expensive half of answering them.
//!
//! - [`request`] finds plain requests among what a client sends.
//! - [`response`] writes their answers, and [`refusal`] those of refused requests.
//! - [`serve`] goes from one request to the next, until one is not plain. That one is left unchanged for hyper.
//!
//! So hyper alone judges malformed requests.

mod refusal;
mod request;
mod response;
mod serve;

pub(super) use refusal::Refusals;
pub(super) use request::Plain;
pub(super) use serve::{Left, serve};
