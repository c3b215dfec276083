//! What a sender may say about a message, checked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Expression, Flow, redact::Redact};

/// How a message is delivered. Everything has a default, so that an empty one is a plain POST.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Spec {
    /// Empty: POST.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) method: String,
    /// What the endpoint gets, names as HTTP writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Start>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_delay: Option<Expression>,
    /// Milliseconds for one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<u64>,
    /// Told of every attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<Box<Callback>>,
    /// Told when no attempt is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_callback: Option<Box<Callback>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dedupe: Option<Dedupe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow: Option<Flow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) labels: Vec<String>,
    #[serde(skip_serializing_if = "Redact::is_empty")]
    pub(crate) redact: Redact,
}

/// When a message may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Start {
    /// So many milliseconds after it was accepted.
    After(u64),
    /// At this moment: seconds since the Unix epoch.
    At(u64),
}

/// Who is told, and how that message is delivered in its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Callback {
    pub(crate) url: String,
    pub(crate) spec: Spec,
}

/// What makes two messages the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dedupe {
    /// An id of the sender's.
    Id(String),
    /// An id of the server's own, which no sender can choose.
    Own(String),
    /// Destination, body, content type and forwarded headers.
    Content,
}

/// Retries where the sender says nothing.
const RETRIES: u32 = 3;
/// Time for an attempt where the sender says nothing.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

impl Spec {
    /// The method.
    pub(crate) fn method(&self) -> &str {
        if self.method.is_empty() { "POST" } else { &self.method }
    }

    /// How often it is tried again.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.unwrap_or(RETRIES)
    }

    /// These settings over others: what is said here holds, and what is not is as it was. When it starts, and what makes it one
    /// with another, is said anew or not at all; a header that is forwarded replaces those of its name.
    #[must_use]
    pub(crate) fn over(mut self, old: Spec) -> Spec {
        let is_new = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut headers: Vec<_> = old.headers.into_iter().filter(|(name, _)| !is_new(name)).collect();
        headers.append(&mut self.headers);
        Spec {
            method: if self.method.is_empty() { old.method } else { self.method },
            headers,
            start: self.start,
            retries: self.retries.or(old.retries),
            retry_delay: self.retry_delay.or(old.retry_delay),
            timeout: self.timeout.or(old.timeout),
            callback: self.callback.or(old.callback),
            failure_callback: self.failure_callback.or(old.failure_callback),
            dedupe: self.dedupe,
            flow: self.flow.or(old.flow),
            labels: if self.labels.is_empty() { old.labels } else { self.labels },
            redact: if self.redact.is_empty() { old.redact } else { self.redact },
        }
    }

    /// How many bytes of it are text that the sender chose, as far as that can be much.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let labels: usize = self.labels.iter().map(String::len).sum();
        let callbacks = [&self.callback, &self.failure_callback].into_iter().flatten();
        headers + labels + callbacks.map(|callback| callback.url.len() + callback.spec.size()).sum::<usize>()
    }

    /// How long an attempt may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.map_or(TIMEOUT, Duration::from_millis)
    }
}
