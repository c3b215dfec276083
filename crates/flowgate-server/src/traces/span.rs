//! One stretch of a message's way: when, under whom, and what is worth knowing of it.

use serde_json::{Value, json};

use super::context::Context;
use crate::clock;

/// What sort of work a span is, by OpenTelemetry's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An HTTP request to others.
    Client = 3,
    /// A message is sent.
    Producer = 4,
    /// A message is taken up.
    Consumer = 5,
}

/// A span; it ends when the tracer gets it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) context: Context,
    pub(super) parent: Option<Context>,
    /// Nanoseconds since the Unix epoch.
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) attributes: Vec<Value>,
    pub(super) error: Option<String>,
}

impl Span {
    /// A span that begins now.
    pub(crate) fn new(name: &'static str, kind: Kind, context: Context, parent: Option<Context>) -> Self {
        let began = clock::nanos();
        Span { name, kind, context, parent, began, ended: began, attributes: Vec::new(), error: None }
    }

    /// It began then, in milliseconds since the Unix epoch.
    pub(crate) fn began_at(mut self, millis: u64) -> Self {
        self.began = self.began.min(millis.saturating_mul(1_000_000));
        self
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.attributes.push(json!({ "key": key, "value": { "stringValue": value } }));
    }

    pub(crate) fn number(&mut self, key: &str, value: u64) {
        // 64-bit numbers are text in this form of JSON.
        self.attributes.push(json!({ "key": key, "value": { "intValue": value.to_string() } }));
    }

    /// It did not do what it should.
    pub(crate) fn failed(&mut self, why: &str) {
        self.error = Some(why.to_owned());
    }
}
