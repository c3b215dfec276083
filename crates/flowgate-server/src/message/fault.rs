//! Why a message is not accepted.

use std::fmt;

const PREFIX: &str = "Upstash-";

/// A part of a request that cannot be accepted: what it is, what was said, and what to say instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The header, where there is one by itself.
    field: String,
    text: String,
}

impl Fault {
    /// `field` is `said`, which is not `accepted`.
    pub(crate) fn new(field: &str, said: &str, accepted: &str) -> Self {
        let mut said: String = said.chars().take(100).collect();
        if said.is_empty() {
            said.push_str("empty");
        } else {
            said = format!("{said:?}");
        }
        Fault { field: field.to_owned(), text: format!(" is {said}; send {accepted}") }
    }

    /// In words of its own.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Fault { field: String::new(), text: text.into() }
    }

    /// The same of headers that stand behind this prefix: those of a callback are told by the names they came under.
    pub(super) fn behind(mut self, prefix: &str) -> Self {
        // What was said is not touched: it is the sender's.
        let named = if self.field.is_empty() { &mut self.text } else { &mut self.field };
        *named = named.replace(PREFIX, prefix);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field, self.text)
    }
}
