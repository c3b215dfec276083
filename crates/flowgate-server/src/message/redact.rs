//! What a sender does not want to be shown: it is delivered as it is, and told as a digest.

use http::HeaderName;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::Fault;

/// The parts that are told as digests only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Redact {
    #[serde(default)]
    pub(crate) body: bool,
    #[serde(default)]
    headers: bool,
    /// In lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    named: Vec<String>,
}

impl Redact {
    /// From a list like `body, header[Authorization]`.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        let mut redact = Redact::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let lower = part.to_ascii_lowercase();
            match lower.as_str() {
                "body" => redact.body = true,
                "header" | "headers" => redact.headers = true,
                _ => {
                    let named = lower.strip_prefix("header[").or_else(|| lower.strip_prefix("headers["));
                    let named = named
                        .and_then(|rest| rest.strip_suffix(']'))
                        .filter(|name| HeaderName::from_bytes(name.as_bytes()).is_ok());
                    let wrong = || Fault::new("Upstash-Redact-Fields", part, "body, header or header[Name]");
                    redact.named.push(named.ok_or_else(wrong)?.to_owned());
                }
            }
        }
        Ok(redact)
    }

    /// Nothing is hidden.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Redact::default()
    }

    /// The value of a header as it is told.
    pub(crate) fn header(&self, name: &str, value: &str) -> String {
        if self.headers || self.named.iter().any(|hidden| hidden.eq_ignore_ascii_case(name)) {
            return hidden(value.as_bytes());
        }
        value.to_owned()
    }
}

/// What stands for something that is not told.
pub(crate) fn hidden(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("REDACTED:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_told_as_a_digest() {
        let redact = Redact::read("body, header[Authorization]").expect("a list");
        assert!(redact.body && !redact.is_empty());
        assert_eq!(redact.header("X-Plain", "seen"), "seen");
        let told = redact.header("authorization", "secret");
        assert!(told.starts_with("REDACTED:") && told.len() == 9 + 64, "{told}");
        assert!(Redact::read("headers").expect("a list").header("x", "y").starts_with("REDACTED:"));
        // Seen to fail: with any text for a name, a header that none is called was to be hidden, and all were shown.
        for text in ["bodies", "header[]", "header[x", "header[X One]", "header[x[y]]"] {
            assert!(Redact::read(text).is_err(), "{text}");
        }
    }
}
