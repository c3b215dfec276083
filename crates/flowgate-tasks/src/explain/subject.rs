//! What is to be explained.

use std::{fmt, str::FromStr};

use flowgate_core::OptionError;

use crate::task::TaskId;

/// A task, a key or a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `17`.
    Task(TaskId),
    /// `key:acme`.
    Key(String),
    /// `queue:email`.
    Queue(String),
}

impl FromStr for Subject {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        if let Some(name) = text.strip_prefix("key:") {
            return Ok(Subject::Key(name.to_owned()));
        }
        if let Some(name) = text.strip_prefix("queue:").filter(|name| !name.is_empty()) {
            return Ok(Subject::Queue(name.to_owned()));
        }
        let accepted = "the number of a task, `key:` and a key, or `queue:` and a queue";
        let number = text.strip_prefix("task:").unwrap_or(text).parse();
        number
            .map(|id| Subject::Task(TaskId(id)))
            .map_err(|_| OptionError::new("subject", format_args!("{text:?}"), accepted))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Task(id) => write!(f, "task {id}"),
            Subject::Key(key) => write!(f, "key `{key}`"),
            Subject::Queue(queue) => write!(f, "queue `{queue}`"),
        }
    }
}
