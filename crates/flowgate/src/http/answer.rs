//! How a refusal is answered.
//!
//! Owns status, headers and bodies of refused requests: problem documents (RFC 9457), the JSON envelope of seed 003, and
//! gRPC's own form. Every refusal carries `Cache-Control: no-store` and the marker [`REFUSAL`], by which a client knows that
//! the request did not run.

use std::{borrow::Cow, fmt::Write, time::Duration};

use bytes::Bytes;
use flowgate_core::{Code, OptionError, Reason, Refusal};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::figures::{digits, number, whole_seconds};

/// On every refusal, with its reason.
pub(crate) const REFUSAL: HeaderName = HeaderName::from_static("flowgate-refusal");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: &str = "application/grpc";
/// With the figures of both kinds, and what a server adds. For one more, a map has room for twice as many.
const MOST_HEADERS: usize = 12;
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The reason of one who is shed: no gate's, so the core has no word for it.
pub(crate) const OVERLOAD: &str = "overload";

/// How a refusal is answered: 503 and a problem document, unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: StatusCode,
    retry_after: Duration,
    format: Format,
    over_max: Wording,
    over_rate: Wording,
}

/// The form of a refusal's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `application/problem+json`.
    Problem,
    /// `application/json`: `{"status": "error", "error": {code, title, message, log_url}}`.
    Envelope,
}

/// The words of a refusal. A message may have `{max}`, `{in_flight}`, `{waiting}` and `{retry_after}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wording {
    code: Cow<'static, str>,
    title: Cow<'static, str>,
    message: Cow<'static, str>,
}

/// What is told of a refusal.
struct Facts {
    reason: &'static str,
    is_rate: bool,
    is_budget: bool,
    code: Code,
    max: Option<u32>,
    in_use: u32,
    waiting: u32,
    retry_after: Option<Duration>,
}

/// What numbers take in a message.
const ROOM: usize = 32;
const PLACES: [&str; 4] = ["max", "in_flight", "waiting", "retry_after"];

impl Wording {
    /// These words; an error if the message has a place in braces that nothing is known to fill.
    pub fn new(
        code: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Result<Self, OptionError> {
        let wording = Wording { code: code.into(), title: title.into(), message: message.into() };
        let text = &*wording.message;
        let mut rest = text;
        while let Some(start) = rest.find(['{', '}']) {
            let known = PLACES.iter().find_map(|place| place_at(&rest[start..], place));
            let accepted = || "text with no braces but {max}, {in_flight}, {waiting} and {retry_after}";
            rest = known.ok_or_else(|| OptionError::new("message", format!("{text:?}"), accepted()))?;
        }
        Ok(wording)
    }

    const fn fixed(code: &'static str, title: &'static str, message: &'static str) -> Self {
        Wording { code: Cow::Borrowed(code), title: Cow::Borrowed(title), message: Cow::Borrowed(message) }
    }

    fn with_message(&self, message: impl Into<Cow<'static, str>>) -> Result<Self, OptionError> {
        Wording::new(self.code.clone(), self.title.clone(), message)
    }

    /// The message with its places filled. Under overload there is one of these for each request, so it is put together in
    /// one go.
    fn filled(&self, facts: &Facts, retry_after: u64) -> String {
        let mut text = String::with_capacity(self.message.len() + ROOM);
        let mut rest = &*self.message;
        while let Some((before, behind)) = rest.split_once('{') {
            text.push_str(before);
            let (place, after) = behind.split_once('}').unwrap_or((behind, ""));
            match (place, facts.max) {
                ("max", Some(max)) => push_number(&mut text, max.into()),
                ("max", None) => text.push_str("unlimited"),
                ("in_flight", _) => push_number(&mut text, facts.in_use.into()),
                ("waiting", _) => push_number(&mut text, facts.waiting.into()),
                _ => push_number(&mut text, retry_after),
            }
            rest = after;
        }
        text.push_str(rest);
        text
    }
}

fn push_number(text: &mut String, number: u64) {
    let (digits, at) = digits(number);
    text.push_str(str::from_utf8(&digits[at..]).expect("digits are plain text"));
}

/// What follows `{place}`, if the text begins with that.
fn place_at<'a>(text: &'a str, place: &str) -> Option<&'a str> {
    text.strip_prefix('{')?.strip_prefix(place)?.strip_prefix('}')
}

impl Default for Answer {
    fn default() -> Self {
        Answer {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Duration::from_secs(1),
            format: Format::Problem,
            over_max: Wording::fixed(
                Code::Refused.as_str(),
                "Too many requests in flight",
                "The service is at capacity. Please retry shortly.",
            ),
            over_rate: Wording::fixed(
                Code::RateRefused.as_str(),
                "Rate limit exceeded",
                "Too many requests. Please retry after {retry_after} s.",
            ),
        }
    }
}

impl Answer {
    /// As seed 003 has it: 429 with the JSON envelope.
    pub fn envelope() -> Self {
        Answer {
            status: StatusCode::TOO_MANY_REQUESTS,
            format: Format::Envelope,
            over_max: Wording::fixed(
                "PLATFORM.CONCURRENCY_LIMIT_EXCEEDED",
                "Concurrency limit exceeded.",
                "Maximum concurrent action requests per integration is {max}. Currently {in_flight} in flight.",
            ),
            over_rate: Wording::fixed(
                "PLATFORM.RATE_LIMIT_EXCEEDED",
                "Rate limit exceeded.",
                "Too many requests in the current window. Retry after {retry_after} s.",
            ),
            ..Answer::default()
        }
    }

    /// The status: 503 says "our capacity", 429 "your budget".
    pub fn status(mut self, status: StatusCode) -> Result<Self, OptionError> {
        if !status.is_client_error() && !status.is_server_error() {
            return Err(OptionError::new(
                "status",
                status.as_u16(),
                "a status from 400 to 599, like 503 or 429",
            ));
        }
        self.status = status;
        Ok(self)
    }

    /// What `Retry-After` says where nothing better is known, in whole seconds, rounded up. Zero omits the header.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// The form of the body.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The message to the client, whatever the limit.
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Result<Self, OptionError> {
        let message = message.into();
        self.over_max = self.over_max.with_message(message.clone())?;
        self.over_rate = self.over_rate.with_message(message)?;
        Ok(self)
    }

    /// The words where too many are in flight.
    pub fn over_max(mut self, wording: Wording) -> Self {
        self.over_max = wording;
        self
    }

    /// The words where too many have started.
    pub fn over_rate(mut self, wording: Wording) -> Self {
        self.over_rate = wording;
        self
    }

    /// The response to a refused request, whose headers say in which form its client reads it.
    pub fn refuse(&self, refusal: &Refusal, request: &HeaderMap) -> Response<Bytes> {
        let is_rate = refusal.reason == Reason::Rate;
        // A full table of keys, a pause and a close are nobody's budget.
        let is_budget = !matches!(refusal.reason, Reason::KeysFull | Reason::Paused | Reason::Closed);
        let facts = Facts {
            reason: refusal.reason.as_str(),
            is_rate,
            is_budget,
            code: refusal.code(),
            max: refusal.max,
            in_use: refusal.in_use,
            waiting: refusal.waiting,
            retry_after: refusal.retry_after,
        };
        self.write(&facts, request)
    }

    /// The response to a request that was shed.
    pub(crate) fn shed(&self, request: &HeaderMap) -> Response<Bytes> {
        let facts = Facts {
            reason: OVERLOAD,
            is_rate: false,
            is_budget: true,
            code: Code::Refused,
            max: None,
            in_use: 0,
            waiting: 0,
            retry_after: None,
        };
        self.write(&facts, request)
    }

    /// The response to a request whose key could not be told, because the code that was asked for it panicked.
    pub(crate) fn misconfigured(&self, request: &HeaderMap) -> Response<Bytes> {
        let (status, code) = (StatusCode::INTERNAL_SERVER_ERROR, Code::Misconfigured.as_str());
        let message = "It could not be told which limit this request is under.";
        if is_grpc(request) {
            return grpc(status, message);
        }
        self.fail(status, code, "Misconfigured", message)
    }

    /// Another failure in the same form: what a gateway says for an upstream that does not answer.
    pub fn fail(&self, status: StatusCode, code: &str, title: &str, message: &str) -> Response<Bytes> {
        let body = match self.format {
            Format::Problem => problem(status, code, title, message, ""),
            Format::Envelope => envelope(code, title, message),
        };
        self.respond(status, body)
    }

    fn write(&self, facts: &Facts, request: &HeaderMap) -> Response<Bytes> {
        let status = if facts.is_budget { self.status } else { StatusCode::SERVICE_UNAVAILABLE };
        let wording = if facts.is_rate { &self.over_rate } else { &self.over_max };
        let retry_after = whole_seconds(facts.retry_after.unwrap_or(self.retry_after)).max(1);
        let message = wording.filled(facts, retry_after);
        let mut response = if is_grpc(request) {
            grpc(status, &message)
        } else {
            let body = match self.format {
                Format::Problem => {
                    let members =
                        [",\"code\":\"", facts.code.as_str(), "\",\"reason\":\"", facts.reason, "\""]
                            .concat();
                    problem(status, &wording.code, &wording.title, &message, &members)
                }
                Format::Envelope => envelope(&wording.code, &wording.title, &message),
            };
            self.respond(status, body)
        };
        let headers = response.headers_mut();
        headers.insert(REFUSAL, HeaderValue::from_static(facts.reason));
        if !self.retry_after.is_zero() {
            headers.insert(header::RETRY_AFTER, number(retry_after));
        }
        response
    }

    fn respond(&self, status: StatusCode, body: String) -> Response<Bytes> {
        let kind = match self.format {
            Format::Problem => "application/problem+json",
            Format::Envelope => "application/json",
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = HeaderMap::with_capacity(MOST_HEADERS);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
        response
    }
}

fn is_grpc(request: &HeaderMap) -> bool {
    request.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
}

/// gRPC has its own way: status 200, and the truth in the trailers, which may stand in the head where there is no body.
fn grpc(status: StatusCode, message: &str) -> Response<Bytes> {
    let (resource_exhausted, internal, unavailable) = ("8", "13", "14");
    let code = match status {
        StatusCode::TOO_MANY_REQUESTS => resource_exhausted,
        StatusCode::INTERNAL_SERVER_ERROR => internal,
        _ => unavailable,
    };
    let mut text = String::new();
    for byte in message.bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => {
                write!(text, "%{byte:02X}").expect("a string takes all that is written");
            }
            _ => text.push(char::from(byte)),
        }
    }
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
    headers.insert(GRPC_MESSAGE, HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("refused")));
    response
}

fn problem(status: StatusCode, code: &str, title: &str, detail: &str, members: &str) -> String {
    let (code, title, detail) = (escaped(code), escaped(title), escaped(detail));
    let status = status.as_str();
    [
        "{\"type\":\"urn:flowgate:error:",
        &code,
        "\",\"title\":\"",
        &title,
        "\",\"status\":",
        status,
        ",\"detail\":\"",
        &detail,
        "\"",
        members,
        "}",
    ]
    .concat()
}

/// The vendor's own client asks for `log_url`, even where there is none.
fn envelope(code: &str, title: &str, message: &str) -> String {
    let (code, title, message) = (escaped(code), escaped(title), escaped(message));
    [
        "{\"status\":\"error\",\"error\":{\"code\":\"",
        &code,
        "\",\"title\":\"",
        &title,
        "\",\"message\":\"",
        &message,
        "\",\"log_url\":null}}",
    ]
    .concat()
}

/// The text as it stands between the quotes of a JSON string.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| character >= ' ' && character != '"' && character != '\\';
    // Without a way out, so that many bytes are looked at in one go.
    let is_special = |found, byte| found | (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if !text.bytes().fold(false, is_special) {
        return Cow::Borrowed(text);
    }
    let mut json = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            plain if is_plain(plain) => json.push(plain),
            other => {
                write!(json, "\\u{:04x}", u32::from(other)).expect("a string takes all that is written");
            }
        }
    }
    Cow::Owned(json)
}
