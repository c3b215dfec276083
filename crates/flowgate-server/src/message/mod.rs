//! A message: an HTTP request that is to be made later, under limits, until it works.
//!
//! Reading order:
//!
//! - [`spec`] is what a sender may say about a message, and [`headers`] reads it from request headers.
//! - [`span`], [`names`], [`flow`], [`expression`] and [`redact`] are its parts; [`destination`] is where it
//!   goes, and [`place`] the part of that which a filter asks for.
//! - [`form`] has the message itself and its bytes in a store; [`plain`] writes and reads those of a usual
//!   message by hand.
//! - [`number`] is its name, [`view`] how it is shown. [`halves`] removes from a request what no text can contain.
//!
//! All of it is pure: no store, no clock, no network. A message that cannot be accepted is a [`Fault`], which
//! says what to send instead.

mod destination;
mod expression;
mod fault;
mod flow;
mod form;
mod halves;
mod headers;
mod names;
mod number;
mod place;
mod plain;
mod redact;
mod space;
mod span;
mod spec;
mod view;

pub(crate) use destination::{Destination, Target, decode};
pub(crate) use expression::Expression;
pub(crate) use fault::Fault;
pub(crate) use flow::Flow;
pub(crate) use form::{Head, Message, Part, Role, Unreadable};
pub(crate) use halves::{from_json, from_json_object};
pub(crate) use headers::{Given, MOST_RETRIES, canonical, read};
pub(crate) use names::name;
pub(crate) use number::{Numbers, put_decimal, put_hex};
pub(crate) use place::is_at;
pub(crate) use redact::hidden;
pub(crate) use space::{Space, Spaces};
pub(crate) use span::{seconds, span};
pub(crate) use spec::{Callback, Dedupe, Spec, Start};
pub(crate) use view::{bytes_as_letters, header_map, message_view};
