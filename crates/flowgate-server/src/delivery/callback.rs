//! Callbacks: what others are told of an attempt, as messages of their own.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::egress::{Answer, NoAnswer};
use crate::message::{Callback, Message, header_map, message_view};

/// An attempt, as it is told.
pub(super) struct Told<'a> {
    pub(super) id: &'a str,
    pub(super) message: &'a Message,
    pub(super) retried: u32,
    pub(super) answer: &'a Result<Answer, NoAnswer>,
    /// Where the dead letter is, if no attempt is left.
    pub(super) dead: Option<&'a str>,
    /// What is told beside.
    pub(super) more: Map<String, Value>,
}

/// The message that tells it, one of at most `share` to its host at once: an endpoint that is slow to be told of others'
/// failures takes no slots from them.
pub(super) fn message(callback: &Callback, told: &Told<'_>, now: u64, share: u32) -> Message {
    let mut spec = callback.spec.clone();
    spec.retries = spec.retries.or(told.message.head.spec.retries);
    // Its body has in it what the message hides: it is told to the endpoint, and to nobody else.
    spec.redact.body |= !told.message.head.spec.redact.is_empty();
    if !spec.headers.iter().any(|(name, _)| name == "Content-Type") {
        spec.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    let mut message =
        Message { head: Default::default(), body: Bytes::from(Value::Object(body(told)).to_string()) };
    message.head.url.clone_from(&callback.url);
    message.head.created = now;
    message.head.spec = spec;
    message.head.share = Some(share);
    message.head.caller.clone_from(&told.message.head.caller);
    message
}

fn body(told: &Told<'_>) -> Map<String, Value> {
    let source = message_view(told.id, told.message);
    let mut body = Map::new();
    let (status, header, answered) = match told.answer {
        Ok(answer) => {
            let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), text(value)));
            (answer.status.as_u16(), header_map(headers), answer.body.clone())
        }
        Err(error) => (0, json!({}), Bytes::from(error.to_string())),
    };
    body.insert("status".into(), json!(status));
    body.insert("header".into(), header);
    body.insert("body".into(), json!(STANDARD.encode(&answered)));
    if told.retried > 0 {
        body.insert("retried".into(), json!(told.retried));
    }
    body.insert("sourceMessageId".into(), json!(told.id));
    body.insert("sourceBody".into(), json!(STANDARD.encode(&told.message.body)));
    let headers = told.message.head.spec.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    body.insert("sourceHeader".into(), header_map(headers));
    let same = [
        "maxRetries",
        "url",
        "method",
        "notBefore",
        "createdAt",
        "callerIP",
        "topicName",
        "endpointName",
        "scheduleId",
    ];
    for name in same {
        if let Some(value) = source.get(name) {
            body.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(dead) = told.dead {
        body.insert("dlqId".into(), json!(dead));
    }
    body.extend(told.more.clone());
    body
}
