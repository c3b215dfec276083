//! What a request is told instead of a result, and the headers that tell how full a gate is.
//!
//! Owns the problem documents (RFC 9457), their status codes and headers. It decides nothing.

use std::time::Duration;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flowgate::{Gate, KeyedGate, OptionError, Reason, Refusal};
use serde::Serialize;

const LIMIT: HeaderName = HeaderName::from_static("concurrency-limit");
const REMAINING: HeaderName = HeaderName::from_static("concurrency-remaining");

/// Why there is no result.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    /// A gate refused; with how full it was.
    Refused(Refusal, Option<Gauge>),
    /// The request says something that is not accepted; nothing was changed.
    Input { field: &'static str, value: String, accepted: String },
    /// Something would be changed, and it is not the page that asks.
    Foreign,
    /// There is no such path.
    Unknown,
    /// There is such a path, and it does something else.
    Method,
}

/// How full a lane is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauge {
    limit: u32,
    remaining: u32,
}

#[derive(Serialize)]
struct Document<'a> {
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

impl Problem {
    pub(super) fn input(field: &'static str, value: impl Into<String>, accepted: impl Into<String>) -> Self {
        Problem::Input { field, value: value.into(), accepted: accepted.into() }
    }

    fn status(&self) -> StatusCode {
        match self {
            // 429 is "your budget", 503 is "our capacity".
            Problem::Refused(refusal, _) if refusal.reason == Reason::Rate => StatusCode::TOO_MANY_REQUESTS,
            Problem::Refused(..) => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Input { .. } => StatusCode::BAD_REQUEST,
            Problem::Foreign => StatusCode::FORBIDDEN,
            Problem::Unknown => StatusCode::NOT_FOUND,
            Problem::Method => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    fn detail(&self) -> String {
        match self {
            Problem::Refused(refusal, _) => refusal.to_string(),
            Problem::Input { field, value, accepted } => {
                format!("`{field}` is {value}; accepted: {accepted}")
            }
            Problem::Foreign => {
                "only the demo's own page may change a gate; outside a browser, send the header \
                `X-Flowgate: console`"
                    .to_owned()
            }
            Problem::Unknown => {
                "available paths: /, /figures, /events, /work?ms=500 and /tenant/{key}?ms=500".to_owned()
            }
            Problem::Method => "use GET to look, and POST for /gate/… and /load".to_owned(),
        }
    }

    /// Whole seconds, rounded up and never 0: who comes back after them is not too early.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Problem::Refused(refusal, _) if refusal.reason == Reason::Rate => {
                Some(refusal.retry_after.map_or(1, seconds_up))
            }
            Problem::Refused(..) => Some(1),
            _ => None,
        }
    }
}

fn seconds_up(span: Duration) -> u64 {
    (span.as_secs() + u64::from(span.subsec_nanos() > 0)).max(1)
}

impl From<OptionError> for Problem {
    fn from(error: OptionError) -> Self {
        Problem::input(error.option(), error.value(), error.accepted())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let (refusal, gauge) = match &self {
            Problem::Refused(refusal, gauge) => (Some(refusal), *gauge),
            _ => (None, None),
        };
        let document = Document {
            title: status.canonical_reason().expect("every status used here has a name"),
            status: status.as_u16(),
            detail: &self.detail(),
            code: refusal.map(|refusal| refusal.code().as_str()),
            reason: refusal.map(|refusal| refusal.reason.as_str()),
            field: if let Problem::Input { field, .. } = &self { Some(field) } else { None },
        };
        let mut response = json(status, &document);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(gauge) = gauge {
            gauge.write(&mut response);
        }
        response
    }
}

impl Gauge {
    pub(super) fn of(gate: &Gate) -> Option<Self> {
        let look = gate.look();
        Some(Gauge::new(look.limits.max()?, look.in_use))
    }

    pub(super) fn of_lane(gate: &KeyedGate, key: &str) -> Option<Self> {
        match gate.look_key(key) {
            Some(lane) => Some(Gauge::new(lane.limits.max()?, lane.in_use.into())),
            None => Some(Gauge::new(gate.limits().max()?, 0)),
        }
    }

    fn new(limit: u32, in_use: u64) -> Self {
        // After `max` was lowered more may be out than it says, for a while.
        let in_use = u32::try_from(in_use).unwrap_or(u32::MAX);
        Gauge { limit, remaining: limit.saturating_sub(in_use) }
    }

    pub(super) fn write(self, response: &mut Response) {
        response.headers_mut().insert(LIMIT, self.limit.into());
        response.headers_mut().insert(REMAINING, self.remaining.into());
    }
}

/// A document that is true for this moment only.
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let text = serde_json::to_string(document).expect("numbers and text under fixed names are JSON");
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_retry_after_is_rounded_up_and_never_zero() {
        // Seen to fail: with `as_secs` alone, who comes back after 1.2 s is told 1 and is too early.
        for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_999, 60), (60_000, 60)] {
            assert_eq!(seconds_up(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }
}
