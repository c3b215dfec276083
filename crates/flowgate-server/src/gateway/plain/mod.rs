//! Plain requests, served by hand.
//!
//! Most requests are plain: HTTP/1.1, nothing special about the connection, and a body that came with the head, if any. A
//! general server is the expensive half of answering them. [`request`] finds them among what a client sends, [`response`]
//! writes their answers ([`refusal`] those of the many who are turned away), and [`serve`] goes from one to the next until there is something that is not plain, which is left as
//! it came for hyper: so hyper alone decides what is right of all that could be wrong.

mod refusal;
mod request;
mod response;
mod serve;

pub(super) use refusal::Refusals;
pub(super) use request::Plain;
pub(super) use serve::{Left, serve};
