//! What is told of a message, in the words of the protocol.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{Message, Spec, canonical, redact::hidden};

/// Headers as a map of lists, names as HTTP writes them.
pub(crate) fn header_map<'a>(headers: impl IntoIterator<Item = (&'a str, String)>) -> Value {
    let mut map = Map::new();
    for (name, value) in headers {
        let values = map.entry(canonical(name)).or_insert_with(|| json!([]));
        values.as_array_mut().expect("it was made as a list").push(Value::String(value));
    }
    Value::Object(map)
}

/// Headers as the clients of workflows make objects of them: a letter for each byte. Any other letter is refused there, with
/// every delivery, and the run fails.
pub(crate) fn bytes_as_letters(headers: &http::HeaderMap) -> Value {
    let letters = |value: &http::HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    header_map(headers.iter().map(|(name, value)| (name.as_str(), letters(value))))
}

/// The headers of a callback without what its message hides, and what it hides itself.
fn callback_headers(source: &Spec, callback: &Spec) -> Value {
    let told = |name: &str, value: &str| match source.redact.header(name, value) {
        same if same == value => callback.redact.header(name, value),
        hidden => hidden,
    };
    header_map(callback.headers.iter().map(|(name, value)| (name.as_str(), told(name, value))))
}

/// The message as a JSON object: `messageId`, `url` and all that is known beside. What is not set is left out.
pub(crate) fn message_view(id: &str, message: &Message) -> Map<String, Value> {
    let Message { head, body } = message;
    let spec = &head.spec;
    let mut view = Map::new();
    let mut put = |name: &str, value: Value| drop(view.insert(name.to_owned(), value));
    put("messageId", json!(id));
    put("url", json!(head.url));
    put("method", json!(spec.method()));
    put("maxRetries", json!(spec.retries()));
    put("notBefore", json!(message.not_before()));
    put("createdAt", json!(head.created));
    let told = |(name, value): &(String, String)| (name.clone(), spec.redact.header(name, value));
    let headers: Vec<(String, String)> = spec.headers.iter().map(told).collect();
    put("header", header_map(headers.iter().map(|(name, value)| (name.as_str(), value.clone()))));
    match std::str::from_utf8(body) {
        _ if body.is_empty() => {}
        _ if spec.redact.body => put("body", json!(hidden(body))),
        Ok(text) => put("body", json!(text)),
        Err(_) => put("bodyBase64", json!(STANDARD.encode(body))),
    }
    let texts = [
        ("callerIP", &head.caller),
        // The types of the JavaScript client call it so.
        ("callerIp", &head.caller),
        ("queueName", &head.queue),
        ("topicName", &head.topic),
        ("endpointName", &head.endpoint),
        ("scheduleId", &head.schedule),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            put(name, json!(value));
        }
    }
    if let Some(part) = &head.part {
        put("workflowRunId", json!(part.id));
    }
    for (name, callback) in [("callback", &spec.callback), ("failureCallback", &spec.failure_callback)] {
        if let Some(callback) = callback {
            put(name, json!(callback.url));
            if !callback.spec.headers.is_empty() {
                put(&format!("{name}Header"), callback_headers(spec, &callback.spec));
            }
        }
    }
    if let Some(first) = spec.labels.first() {
        put("label", json!(first));
        put("labels", json!(spec.labels));
    }
    if let Some(expression) = &spec.retry_delay {
        put("retryDelayExpression", json!(expression.to_string()));
    }
    if let Some(timeout) = spec.timeout {
        put("timeout", json!(timeout));
    }
    if let Some(flow) = &spec.flow {
        if flow.smooth {
            put("smooth", json!(true));
        }
        put("flowControlKey", json!(flow.key));
        // Seconds; a part of one is told as a part, not as nothing.
        let period = flow.period as f64 / 1000.0;
        put("period", if period.fract() == 0.0 { json!(flow.period / 1000) } else { json!(period) });
        for (name, value) in [("parallelism", flow.parallelism), ("rate", flow.rate)] {
            if let Some(value) = value {
                put(name, json!(value));
            }
        }
    }
    view
}
