//! Why a message is not accepted.

use std::fmt;

/// A part of a request that cannot be accepted: what it is, what was said, and what to say instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl Fault {
    /// `field` is `said`, which is not `accepted`.
    pub(crate) fn new(field: &str, said: &str, accepted: &str) -> Self {
        let mut said: String = said.chars().take(100).collect();
        if said.is_empty() {
            said.push_str("empty");
        } else {
            said = format!("{said:?}");
        }
        Fault(format!("{field} is {said}; send {accepted}"))
    }

    /// In words of its own.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Fault(text.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
