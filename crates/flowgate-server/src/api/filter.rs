//! Which messages are meant: any of the values of a name, and all of the names.

use super::{asked::Asked, reply::Problem};
use crate::{
    message::{Message, is_at, name},
    office::queue_key,
};

/// The names that a filter knows.
pub(super) const NAMES: [&str; 12] = [
    "search",
    "url",
    "topicName",
    "scheduleId",
    "queueName",
    "label",
    "flowControlKey",
    "callerIp",
    "fromDate",
    "toDate",
    "host",
    "path",
];

/// A filter of messages. Without anything in it, it lets all of them through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    url: Vec<String>,
    topic: Vec<String>,
    schedule: Vec<String>,
    queue: Vec<String>,
    label: Vec<String>,
    key: Vec<String>,
    caller: Vec<String>,
    host: Vec<String>,
    path: Vec<String>,
    from: Option<u64>,
    to: Option<u64>,
    /// Small letters.
    search: Option<String>,
}

impl Filter {
    pub(super) fn read(asked: &Asked) -> Result<Self, Problem> {
        Ok(Filter {
            url: asked.each("url"),
            topic: asked.all("topicName"),
            schedule: asked.all("scheduleId"),
            queue: asked.all("queueName"),
            label: asked.all("label"),
            key: asked.all("flowControlKey"),
            caller: asked.all("callerIp"),
            host: asked.all("host"),
            path: asked.paths("path"),
            from: asked.moment("fromDate")?,
            to: asked.moment("toDate")?,
            search: asked.one("search").map(str::to_lowercase),
        })
    }

    /// Whether it lets all of them through.
    pub(super) fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// The one key whose line has all that is meant, if nothing is asked but that key, or a queue. What is no name of the API may
    /// be the name of somebody else's line: a queue's, or that of callbacks.
    pub(super) fn line(&self) -> Option<String> {
        let of_key = |key: &String| Filter { key: vec![key.clone()], ..Filter::default() };
        let of_queue = |queue: &String| Filter { queue: vec![queue.clone()], ..Filter::default() };
        match (self.key.first(), self.queue.first()) {
            (Some(text), None) if *self == of_key(text) && name("", text).is_ok() => Some(text.clone()),
            (None, Some(text)) if *self == of_queue(text) && name("", text).is_ok() => Some(queue_key(text)),
            _ => None,
        }
    }

    /// Whether a message can be meant whose stored head these bytes are. Names are written there as they are, so most of many
    /// need not be read to know that they are not.
    pub(super) fn may_match(&self, head: &[u8]) -> bool {
        let has = |wanted: &String| {
            let (length, bytes) = (wanted.len(), wanted.as_bytes());
            length == 0 || head.windows(length).any(|found| found == bytes)
        };
        let named = [&self.topic, &self.schedule, &self.queue, &self.label, &self.key];
        named.into_iter().all(|wanted| wanted.is_empty() || wanted.iter().any(has))
    }

    /// Whether this message, or what happened to it at that moment, is meant.
    pub(super) fn matches(&self, message: &Message, at: u64) -> bool {
        let head = &message.head;
        let any = |wanted: &[String], found: Option<&str>| {
            wanted.is_empty() || found.is_some_and(|found| wanted.iter().any(|wanted| wanted == found))
        };
        let has_label = self.label.is_empty()
            || head.spec.labels.iter().any(|label| self.label.iter().any(|wanted| wanted == label));
        any(&self.url, Some(&head.url))
            && any(&self.topic, head.topic.as_deref())
            && any(&self.schedule, head.schedule.as_deref())
            && any(&self.queue, head.queue.as_deref())
            && any(&self.key, head.spec.flow.as_ref().map(|flow| flow.key.as_str()))
            && any(&self.caller, head.caller.as_deref())
            && has_label
            && is_at(&head.url, &self.host, &self.path)
            && self.search.as_ref().is_none_or(|wanted| is_about(message, wanted))
            && self.from.is_none_or(|from| at >= from)
            && self.to.is_none_or(|to| at <= to)
    }
}

/// Whether the URL, the key, a label, or another name of a message has this in it.
fn is_about(message: &Message, wanted: &str) -> bool {
    let head = &message.head;
    let names = [&head.queue, &head.topic, &head.endpoint, &head.schedule];
    let texts = [Some(&head.url), head.spec.flow.as_ref().map(|flow| &flow.key)];
    let each = texts.into_iter().chain(names.map(Option::as_ref)).flatten().chain(&head.spec.labels);
    each.into_iter().any(|text| text.to_lowercase().contains(wanted))
}
