//! Traces: publish → dispatch → attempt, as OpenTelemetry collectors take them, off unless an address is
//! given.
//!
//! Reading order:
//!
//! - [`context`] is what travels in a `traceparent`, from the publisher through the store to the endpoint;
//!   [`above`] is how it is kept.
//! - [`span`] is one part of a trace.
//! - [`tracer`] takes spans and sends them in batches. It drops spans rather than ever hold up a delivery.
//! - [`otlp`] is the form in which they are sent.

mod above;
mod context;
mod options;
mod otlp;
mod span;
mod tracer;

pub(crate) use above::Above;
pub(crate) use context::Context;
pub(crate) use options::TraceOptions;
pub(crate) use span::{Kind, Span};
pub(crate) use tracer::Tracer;
