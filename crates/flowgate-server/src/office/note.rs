//! One line of the log: what happened to a message, and the message as it was.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::message::{Message, Unreadable, header_map, message_view};

/// Longer answers are cut in the log.
const MOST_OF_AN_ANSWER: usize = 64 * 1024;
/// Headers of an answer beyond so many bytes are left out of the log.
const MOST_OF_HEADERS: usize = 16 * 1024;

/// What can happen to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Stage {
    Created,
    Active,
    Error,
    Retry,
    Delivered,
    Failed,
    CancelRequested,
    Canceled,
}

impl Stage {
    /// As the protocol writes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stage::Created => "CREATED",
            Stage::Active => "ACTIVE",
            Stage::Error => "ERROR",
            Stage::Retry => "RETRY",
            Stage::Delivered => "DELIVERED",
            Stage::Failed => "FAILED",
            Stage::CancelRequested => "CANCEL_REQUESTED",
            Stage::Canceled => "CANCELED",
        }
    }

    /// The beginning of an entry that has nothing but this, made once.
    fn beginning(self) -> &'static [u8] {
        static MADE: LazyLock<[Vec<u8>; 8]> = LazyLock::new(|| {
            use Stage::*;
            [Created, Active, Error, Retry, Delivered, Failed, CancelRequested, Canceled].map(|stage| {
                let head = format!(r#"{{"stage":"{}"}}"#, stage.as_str());
                [&(head.len() as u32).to_be_bytes(), head.as_bytes()].concat()
            })
        });
        &MADE[self as usize]
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) stage: Stage,
    /// What the endpoint said, if it said anything.
    pub(crate) answer: Option<Answered>,
    /// Why the attempt failed.
    pub(crate) error: Option<String>,
    /// When the next attempt is due: milliseconds since the Unix epoch.
    pub(crate) next: Option<u64>,
    /// How many attempts have failed by now, with this one.
    pub(crate) failed: Option<u32>,
    /// With its body where it was created, without it elsewhere.
    pub(crate) message: Message,
}

/// An endpoint's answer, as far as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Base64.
    pub(crate) body: String,
}

#[derive(Serialize, Deserialize)]
struct Head {
    stage: Stage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Answered>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<u32>,
}

impl Answered {
    /// From an answer's parts.
    pub(crate) fn new(status: u16, headers: &http::HeaderMap, body: &[u8]) -> Self {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
        let headers = headers.scan(0, |size, (name, value): (String, String)| {
            *size += name.len() + value.len();
            (*size <= MOST_OF_HEADERS).then_some((name, value))
        });
        let body = STANDARD.encode(&body[..body.len().min(MOST_OF_AN_ANSWER)]);
        Answered { status, headers: headers.collect(), body }
    }

    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Its body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&STANDARD.decode(&self.body).unwrap_or_default()).into_owned()
    }

    /// Its fields of a log or a dead letter: status, headers, and the body as text, or in base64.
    pub(crate) fn put(&self, view: &mut Map<String, Value>) {
        view.insert("responseStatus".into(), json!(self.status));
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
        view.insert("responseHeader".into(), header_map(headers));
        let body = STANDARD.decode(&self.body).unwrap_or_default();
        match String::from_utf8(body) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => drop(view.insert("responseBody".into(), json!(text))),
            Err(_) => drop(view.insert("responseBodyBase64".into(), json!(self.body))),
        }
    }
}

impl Entry {
    /// Nothing but the stage.
    pub(crate) fn plain(stage: Stage, message: Message) -> Self {
        Entry { stage, answer: None, error: None, next: None, failed: None, message }
    }

    /// The bytes of a plain entry, from those of its message: what was stored once is not written anew.
    pub(crate) fn plain_bytes(stage: Stage, message: &[u8]) -> Vec<u8> {
        let beginning = stage.beginning();
        let mut bytes = Vec::with_capacity(beginning.len() + message.len());
        bytes.extend_from_slice(beginning);
        bytes.extend_from_slice(message);
        bytes
    }

    /// What stands before the bytes of the message in those of a plain entry.
    pub(crate) fn beginning(stage: Stage) -> Vec<u8> {
        stage.beginning().to_vec()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Entry { stage, answer, error, next, failed, message } = self;
        let (answer, error) = (answer.clone(), error.clone());
        let head = Head { stage: *stage, answer, error, next: *next, failed: *failed };
        let head = serde_json::to_vec(&head).expect("a head is plain data");
        let mut bytes = (head.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&message.to_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self, Unreadable> {
        let bytes = Bytes::from(bytes);
        let length = bytes.first_chunk::<4>().ok_or(Unreadable)?;
        let end = 4 + u32::from_be_bytes(*length) as usize;
        let head = bytes.get(4..end).ok_or(Unreadable)?;
        let head = serde_json::from_slice(head).map_err(|_| Unreadable)?;
        let Head { stage, answer, error, next, failed } = head;
        Ok(Entry { stage, answer, error, next, failed, message: Message::from_bytes(&bytes.slice(end..))? })
    }

    /// The entry as the protocol writes it.
    pub(crate) fn view(&self, id: &str, at: u64) -> Value {
        let mut view = message_view(id, &self.message);
        let body = view.remove("body").and_then(|body| body.as_str().map(str::to_owned));
        let body = body
            .map(|text| STANDARD.encode(text))
            .or_else(|| view.remove("bodyBase64").and_then(|body| body.as_str().map(str::to_owned)));
        if let Some(body) = body {
            view.insert("body".into(), json!(body));
        }
        view.insert("time".into(), json!(at));
        view.insert("state".into(), json!(self.stage.as_str()));
        for (from, to) in
            [("callbackHeader", "callbackHeaders"), ("failureCallbackHeader", "failureCallbackHeaders")]
        {
            if let Some(value) = view.remove(from) {
                view.insert(to.into(), value);
            }
        }
        if let Some(expression) = view.get("retryDelayExpression").cloned() {
            view.insert("retryDelayExpr".into(), expression);
        }
        if let Some(next) = self.next {
            view.insert("nextDeliveryTime".into(), json!(next));
        }
        if let Some(error) = &self.error {
            view.insert("error".into(), json!(error));
        }
        if let Some(answer) = &self.answer {
            answer.put(&mut view);
        }
        Value::Object(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_entry_is_read_as_it_was_written_from_the_bytes_of_its_message() {
        let mut message = Message { head: Default::default(), body: Bytes::from_static(b"body") };
        message.head.url = "https://example.com/\u{e9}".into();
        let bytes = Bytes::from(message.to_bytes());
        let bare = Message::bare(&bytes).expect("its first bytes");
        for stage in [Stage::Created, Stage::Active, Stage::Delivered, Stage::CancelRequested] {
            let whole = Entry::from_bytes(Entry::plain_bytes(stage, &bytes)).expect("an entry");
            assert_eq!(whole, Entry::plain(stage, message.clone()));
            let without_body = Entry::plain_bytes(stage, &bare);
            assert_eq!(without_body, Entry::plain(stage, message.without_body()).to_bytes());
        }
        assert_eq!(Message::bare(&bytes.slice(..7)), Err(Unreadable));
    }
}
