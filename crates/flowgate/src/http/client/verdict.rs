//! Whether a response says that the request was refused before it ran.
//!
//! Owns that one question. Only such a request may be sent again without a second thought; after anything
//! else (a 503 of unknown origin, a timeout) it is not clear what became of the request, and the caller has
//! to decide.

use std::borrow::Cow;

use flowgate_core::{Code, Reason};
use http::{HeaderMap, StatusCode, header, response};

use super::json;
use crate::http::answer::REFUSAL;

/// What kind of limit refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// How many are in flight, or how much the server can take: slots come back as work ends, and a short wait helps.
    Concurrency,
    /// How many may start in a time: nothing helps before its reset.
    Rate,
}

/// A refusal before the request ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The word of the marker, or the code in the body.
    pub(super) reason: String,
    pub(super) limit: Limit,
    /// Whether the same request may succeed later.
    pub(super) is_retryable: bool,
}

/// What the head of a response says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It ran, or nobody knows.
    Unclear,
    /// It was refused.
    Refused(Refused),
    /// Its body may say more.
    AskBody,
}

/// Codes by which a body says that the request was refused.
#[derive(Clone, Debug)]
pub(super) struct Codes(Vec<(String, Limit)>);

impl Default for Codes {
    fn default() -> Self {
        Codes::new([
            (Code::Refused.as_str(), Limit::Concurrency),
            (Code::RateRefused.as_str(), Limit::Rate),
            ("PLATFORM.CONCURRENCY_LIMIT_EXCEEDED", Limit::Concurrency),
            ("PLATFORM.RATE_LIMIT_EXCEEDED", Limit::Rate),
        ])
    }
}

impl Codes {
    pub(super) fn new<C: Into<String>>(codes: impl IntoIterator<Item = (C, Limit)>) -> Self {
        Codes(codes.into_iter().map(|(code, limit)| (code.into(), limit)).collect())
    }

    /// What a body says that was read as a whole.
    pub(super) fn judge(&self, body: &[u8]) -> Option<Refused> {
        let words = json::words(body)?;
        // Routes fail with codes of ours as well, after some of their steps have run. The layers tell a reason too.
        let is_believed = |code: &Cow<str>| words.reason.is_some() || !is_ours(code);
        let said = [words.error_code, words.code.filter(is_believed)];
        let (code, limit) =
            said.iter().flatten().find_map(|said| self.0.iter().find(|(code, _)| code == said))?;
        // Ours says it by the marker as well, but not every proxy lets that through.
        let is_retryable = words.reason.as_deref().is_none_or(is_retryable);
        Some(Refused { reason: code.clone(), limit: *limit, is_retryable })
    }
}

/// What the head of a response says.
pub(super) fn of_head(head: &response::Parts) -> Head {
    if !matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return Head::Unclear;
    }
    if let Some(reason) = head.headers.get(REFUSAL) {
        return match reason.to_str() {
            Ok(reason) => Head::Refused(of_reason(reason.trim())),
            Err(_) => Head::Unclear,
        };
    }
    if is_json(&head.headers) { Head::AskBody } else { Head::Unclear }
}

fn of_reason(reason: &str) -> Refused {
    let limit = if reason == Reason::Rate.as_str() { Limit::Rate } else { Limit::Concurrency };
    Refused { reason: reason.to_owned(), limit, is_retryable: is_retryable(reason) }
}

/// A reason that is not a gate's (load shedding has one) passes with time.
fn is_retryable(reason: &str) -> bool {
    Reason::ALL.iter().find(|known| known.as_str() == reason).is_none_or(|known| known.is_retryable())
}

fn is_ours(code: &str) -> bool {
    [Code::Refused, Code::RateRefused].iter().any(|ours| ours.as_str() == code)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json =
        ["application/json", "application/problem+json"].iter().any(|json| kind.eq_ignore_ascii_case(json));
    is_json && !headers.contains_key(header::CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn head(status: u16, lines: &[(&str, &str)]) -> Head {
        let mut response = Response::builder().status(status);
        for (name, value) in lines {
            response = response.header(*name, *value);
        }
        of_head(&response.body(()).unwrap().into_parts().0)
    }

    fn reason_of(head: Head) -> Option<(String, Limit, bool)> {
        match head {
            Head::Refused(Refused { reason, limit, is_retryable }) => Some((reason, limit, is_retryable)),
            _ => None,
        }
    }

    #[test]
    fn the_marker_says_it_on_429_and_503_alone() {
        // Seen to fail: with 502 let in.
        for status in [429, 503] {
            for (reason, limit, is_retryable) in [
                ("busy", Limit::Concurrency, true),
                ("queue-full", Limit::Concurrency, true),
                ("queue-timeout", Limit::Concurrency, true),
                ("rate", Limit::Rate, true),
                ("paused", Limit::Concurrency, true),
                ("keys-full", Limit::Concurrency, true),
                ("overload", Limit::Concurrency, true),
                ("closed", Limit::Concurrency, false),
                ("re-entrant", Limit::Concurrency, false),
                ("too-heavy", Limit::Concurrency, false),
            ] {
                let head =
                    head(status, &[("flowgate-refusal", reason), ("content-type", "application/json")]);
                assert_eq!(
                    reason_of(head),
                    Some((reason.to_owned(), limit, is_retryable)),
                    "{status} {reason}"
                );
            }
        }
        for status in [200, 400, 404, 408, 500, 502, 504] {
            assert_eq!(head(status, &[("flowgate-refusal", "busy")]), Head::Unclear, "{status}");
        }
    }

    #[test]
    fn without_the_marker_a_json_body_is_asked_and_nothing_else() {
        // Seen to fail: with `starts_with`, `Application/JSON` is not asked.
        for (kind, expected) in [
            ("application/json", Head::AskBody),
            ("Application/JSON; charset=utf-8", Head::AskBody),
            ("application/problem+json", Head::AskBody),
            ("application/jsonl", Head::Unclear),
            ("text/html", Head::Unclear),
        ] {
            assert_eq!(head(429, &[("content-type", kind)]), expected, "{kind}");
        }
        assert_eq!(head(503, &[]), Head::Unclear);
        assert_eq!(head(500, &[("content-type", "application/json")]), Head::Unclear);
        let packed = [("content-type", "application/json"), ("content-encoding", "gzip")];
        assert_eq!(head(429, &packed), Head::Unclear, "what cannot be read says nothing");
    }

    #[test]
    fn codes_are_ours_the_envelopes_or_those_configured() {
        // Seen to fail: with the reason in the body ignored, `closed` is retried; with a code of ours believed that has
        // none, what a route ran in part is.
        let said = |codes: &Codes, body: &str| {
            codes.judge(body.as_bytes()).map(|refused| (refused.reason, refused.limit, refused.is_retryable))
        };
        let expected = |code: &str, limit, is_retryable| Some((code.to_owned(), limit, is_retryable));
        let ours = Codes::default();
        for (body, verdict) in [
            (r#"{"code":"RC5026","reason":"busy"}"#, expected("RC5026", Limit::Concurrency, true)),
            (r#"{"code":"RC5026","reason":"closed"}"#, expected("RC5026", Limit::Concurrency, false)),
            (r#"{"reason":"rate","code":"RC5013"}"#, expected("RC5013", Limit::Rate, true)),
            (r#"{"code":"RC5026"}"#, None),
            (r#"{"code":"RC5013","detail":"rate"}"#, None),
            (r#"{"code":"RC5013","reason":null}"#, None),
            (r#"{"error":{"code":"RC5026"}}"#, expected("RC5026", Limit::Concurrency, true)),
            (
                r#"{"code":"PLATFORM.RATE_LIMIT_EXCEEDED"}"#,
                expected("PLATFORM.RATE_LIMIT_EXCEEDED", Limit::Rate, true),
            ),
            (
                r#"{"status":"error","error":{"code":"PLATFORM.CONCURRENCY_LIMIT_EXCEEDED"}}"#,
                expected("PLATFORM.CONCURRENCY_LIMIT_EXCEEDED", Limit::Concurrency, true),
            ),
            (
                r#"{"error":{"code":"PLATFORM.RATE_LIMIT_EXCEEDED"}}"#,
                expected("PLATFORM.RATE_LIMIT_EXCEEDED", Limit::Rate, true),
            ),
            (r#"{"code":"RC5011"}"#, None),
            (r#"{"error":"RC5026"}"#, None),
            (r#"{"code":"rc5026"}"#, None),
            ("RC5026", None),
        ] {
            assert_eq!(said(&ours, body), verdict, "{body}");
        }
        let theirs = Codes::new([("SLOW_DOWN", Limit::Rate)]);
        assert_eq!(said(&theirs, r#"{"code":"SLOW_DOWN"}"#), expected("SLOW_DOWN", Limit::Rate, true));
        assert_eq!(said(&theirs, r#"{"code":"RC5026","reason":"busy"}"#), None);
    }
}
