//! Messages become requests: one attempt after the other, until one works or none is left.
//!
//! Reading order: [`handler`] is what a worker runs for each message; [`request`] writes the request, [`sign`] signs it and
//! [`egress`] sends it; [`verdict`] says what the answer means and when to try again; [`callback`] tells others.

mod callback;
mod egress;
mod handler;
mod request;
mod resolver;
mod sign;
mod verdict;

pub(crate) use egress::Egress;
pub(crate) use handler::{Courier, KIND, QUEUE};
pub(crate) use sign::SigningKeys;
