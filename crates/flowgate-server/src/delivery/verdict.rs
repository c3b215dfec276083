//! What an answer means, and when to try again.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;

use super::egress::{Answer, NoAnswer};
use crate::message::{Spec, seconds};

/// By it an endpoint says that no other attempt can help.
const FINAL_STATUS: u16 = 489;
const FINAL: &str = "upstash-nonretryable-error";
/// In this order: the first that says something counts.
const WHEN: [&str; 4] =
    ["retry-after", "x-ratelimit-reset", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What becomes of a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Delivered,
    /// Tried again after this wait.
    Again(Duration),
    Failed,
}

/// After attempt number `retried`, counted from 0. `now` is in seconds.
pub(super) fn verdict(spec: &Spec, answer: &Result<Answer, NoAnswer>, retried: u32, now: u64) -> Verdict {
    if let Ok(answer) = answer {
        if answer.status.is_success() {
            return Verdict::Delivered;
        }
        let is_marked =
            answer.headers.get(FINAL).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
        if answer.status.as_u16() == FINAL_STATUS && is_marked {
            return Verdict::Failed;
        }
    }
    if retried >= spec.retries() {
        return Verdict::Failed;
    }
    let asked = answer.as_ref().ok().and_then(|answer| asked_for(&answer.headers, now));
    let own = || spec.retry_delay.as_ref().map(|expression| expression.delay(retried));
    Verdict::Again(asked.or_else(own).unwrap_or_else(|| backoff(retried)))
}

/// How long the endpoint asks to be left alone.
fn asked_for(headers: &HeaderMap, now: u64) -> Option<Duration> {
    let texts = WHEN.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let waits = texts.filter_map(|text| wait(text.trim(), now));
    waits.into_iter().find(|wait| *wait <= DAY)
}

/// Seconds, a span like `6m5s`, or a date. One that has passed says nothing: an endpoint whose clock is late would have all its
/// retries at once.
fn wait(text: &str, now: u64) -> Option<Duration> {
    seconds(text).or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        let at = date.duration_since(UNIX_EPOCH).ok()?;
        at.checked_sub(Duration::from_secs(now)).filter(|wait| !wait.is_zero())
    })
}

/// e^(2.5 n) seconds before retry number n, up to a day: 12 s, 2m28s, 30m8s, 6h7m, 24h.
fn backoff(retried: u32) -> Duration {
    let exponent = 2.5 * (f64::from(retried) + 1.0);
    Duration::try_from_secs_f64(exponent.exp().floor()).unwrap_or(DAY).min(DAY)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderName, HeaderValue, StatusCode};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)]) -> Result<Answer, NoAnswer> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"));
        }
        Ok(Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: map,
            body: Bytes::new(),
        })
    }

    fn after(secs: u64) -> Verdict {
        Verdict::Again(Duration::from_secs(secs))
    }

    #[test]
    fn an_answer_is_delivered_tried_again_or_failed() {
        let spec = Spec::default();
        let table = [
            (answer(200, &[]), 0, Verdict::Delivered),
            (answer(204, &[]), 3, Verdict::Delivered),
            (answer(302, &[("location", "/elsewhere")]), 3, Verdict::Failed),
            (answer(500, &[]), 0, after(12)),
            (answer(500, &[]), 1, after(148)),
            (answer(500, &[]), 2, after(1808)),
            (answer(500, &[]), 3, Verdict::Failed),
            (Err(NoAnswer::Late(DAY)), 0, after(12)),
            (Err(NoAnswer::Broken("refused".into())), 3, Verdict::Failed),
            (answer(489, &[]), 0, after(12)),
            (answer(489, &[("upstash-nonretryable-error", "true")]), 0, Verdict::Failed),
            (answer(429, &[("retry-after", "7")]), 0, after(7)),
            (answer(429, &[("x-ratelimit-reset-tokens", "6m5s")]), 0, after(365)),
            (answer(429, &[("retry-after", "86401"), ("x-ratelimit-reset", "3")]), 0, after(3)),
            (answer(429, &[("retry-after", "Thu, 01 Jan 1970 00:16:50 GMT")]), 0, after(10)),
            // Seen to fail: with a wait of nothing for a date that has passed.
            (answer(429, &[("retry-after", "Thu, 01 Jan 1970 00:10:00 GMT")]), 0, after(12)),
            (answer(429, &[("retry-after", "-7")]), 0, after(12)),
            (answer(429, &[("retry-after", "99999999999999999999")]), 0, after(12)),
            (answer(429, &[("retry-after", "soon")]), 0, after(12)),
        ];
        for (answer, retried, expected) in table {
            assert_eq!(verdict(&spec, &answer, retried, 1000), expected, "{answer:?} {retried}");
        }
        assert_eq!(backoff(3), Duration::from_secs(22026));
        assert_eq!(backoff(4), DAY);
        assert_eq!(backoff(1_000_000), DAY);
    }

    #[test]
    fn a_senders_expression_replaces_the_backoff() {
        let expression = crate::message::Expression::read("1000 * (1 + retried)").expect("an expression");
        let spec = Spec { retry_delay: Some(expression), retries: Some(9), ..Spec::default() };
        assert_eq!(verdict(&spec, &answer(500, &[]), 0, 0), after(1));
        assert_eq!(verdict(&spec, &answer(500, &[]), 4, 0), after(5));
        assert_eq!(verdict(&spec, &answer(500, &[("retry-after", "2")]), 4, 0), after(2));
    }
}
