//! Spans in the JSON of OTLP over HTTP.
//!
//! Owns that form. It is small enough to be written by hand; the crates for it bring protobuf and a second tracing framework.

use serde_json::{Value, json};

use super::span::Span;

/// A request with these spans.
pub(super) fn request(spans: &[Span]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let resource = [text("service.name", "flowgate"), text("service.version", version)];
    let spans: Vec<Value> = spans.iter().map(one).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "flowgate", "version": version }, "spans": spans }],
        }],
    })
    .to_string()
}

fn one(span: &Span) -> Value {
    let mut value = json!({
        "traceId": span.context.trace_id(),
        "spanId": span.context.span_id(),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.began.to_string(),
        "endTimeUnixNano": span.ended.to_string(),
        "attributes": span.attributes,
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = json!(parent.span_id());
    }
    if let Some(error) = &span.error {
        value["status"] = json!({ "code": 2, "message": error });
    }
    value
}
