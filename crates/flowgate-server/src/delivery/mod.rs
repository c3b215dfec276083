//! Messages become requests: one attempt after the other, until one works or none is left.
//!
//! Reading order:
//!
//! - [`handler`] is what a worker runs for each message.
//! - [`request`] writes the request, and [`sign`] signs it.
//! - [`egress`] sends it by the available [`road`]: to plain endpoints with hand-written code ([`plain`], on
//!   connections that [`lines`] keeps), to others with hyper. [`resolver`] and [`trust`] decide which address to
//!   connect to and which certificates to trust.
//! - [`verdict`] decides what the answer means and when to retry.
//! - [`callback`] sends callbacks.
//! - [`in_order`] delivers the messages of a queue one after the other.
//! - [`run`] handles what is different for the messages of a workflow run.

mod callback;
mod egress;
mod handler;
mod in_order;
mod lines;
mod plain;
mod request;
mod resolver;
mod road;
mod run;
mod sign;
mod trust;
mod verdict;

pub(crate) use egress::{Answer, Egress, NoAnswer, Outward};
pub(crate) use handler::{Courier, KIND, QUEUE};
pub(crate) use resolver::ends_in_number;
pub(crate) use run::{BY_REST, Fallen, UNKNOWN_SDK, failure_message};
pub(crate) use sign::{Signer, SigningKeys};
pub(crate) use trust::TrustError;
