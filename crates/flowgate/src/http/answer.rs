//! How a refusal is answered.
//!
//! Owns status, headers and bodies of refused requests: problem documents (RFC 9457), a JSON envelope, and
//! gRPC's own form. Every refusal carries `Cache-Control: no-store` and the marker [`REFUSAL`], by which a
//! client knows that the request did not run.

use std::{borrow::Cow, fmt::Write, time::Duration};

use bytes::Bytes;
use flowgate_core::{Code, OptionError, Reason, Refusal};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::{
    figures::{number, push_number, whole_seconds},
    wording::{Numbers, Wording},
};

/// On every refusal, with its reason.
pub(crate) const REFUSAL: HeaderName = HeaderName::from_static("flowgate-refusal");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: &str = "application/grpc";
/// With the figures of both kinds, and what a server adds. For one more, a map has room for twice as many.
const MOST_HEADERS: usize = 12;
/// What a body takes besides its words.
const FRAME: usize = 160;
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The reason of one who is shed: no gate's, so the core has no word for it.
pub(crate) const OVERLOAD: &str = "overload";
/// Title and message to one who is shed.
const OVERLOADED: (&str, &str) = ("Service overloaded", "The service is overloaded. Please retry shortly.");

/// How a refused request is answered: by default 503 with a problem document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: StatusCode,
    retry_after: Duration,
    format: Format,
    over_max: Wording,
    over_rate: Wording,
    keys_full: Wording,
    overload: Wording,
}

/// The format of a refusal's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `application/problem+json`.
    Problem,
    /// `application/json`: `{"status": "error", "error": {code, title, message, log_url}}`.
    Envelope,
}

/// A refusal in its parts, for a server that writes response heads itself. All others get a response from
/// [`Answer::refuse`], which says the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    status: StatusCode,
    kind: &'static str,
    grpc: Option<Grpc>,
    reason: Option<&'static str>,
    retry_after: Option<u64>,
    body: Vec<u8>,
}

/// gRPC has its own way: status 200, and the truth in the trailers, which may stand in the head where there is no body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grpc {
    status: &'static str,
    message: String,
}

/// What is known of a refusal.
struct Facts {
    reason: &'static str,
    kind: Kind,
    is_budget: bool,
    code: Code,
    max: Option<u32>,
    in_use: u32,
    waiting: u32,
    retry_after: Option<Duration>,
}

/// Whose words a refusal is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OverMax,
    OverRate,
    /// These are about no limit of the caller's.
    KeysFull,
    Overload,
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
            keys_full: Wording::fixed(
                Code::Refused.as_str(),
                "Too many keys in use",
                "Too many keys are in use at once, and yours is not among them. Please retry shortly.",
            ),
            overload: Wording::fixed(Code::Refused.as_str(), OVERLOADED.0, OVERLOADED.1),
        }
    }
}

impl Answer {
    /// Answers with 429 and the JSON envelope that a gateway's clients know.
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
            keys_full: Wording::fixed(
                "PLATFORM.CONCURRENCY_LIMIT_EXCEEDED",
                "Too many keys in use",
                "Too many keys are in use at once, and yours is not among them. Please retry shortly.",
            ),
            overload: Wording::fixed("PLATFORM.CONCURRENCY_LIMIT_EXCEEDED", OVERLOADED.0, OVERLOADED.1),
            ..Answer::default()
        }
    }

    /// Sets the status: 503 says "our capacity", 429 "your budget".
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

    /// Sets what `Retry-After` says if nothing better is known, in whole seconds, rounded up. Zero omits the header.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Sets the format of the body.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets the message to the client, whatever the limit.
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Result<Self, OptionError> {
        let message = message.into();
        self.over_max = self.over_max.with_message(message.clone())?;
        self.over_rate = self.over_rate.with_message(message.clone())?;
        self.keys_full = self.keys_full.with_message(message.clone())?;
        self.overload = self.overload.with_message(message)?;
        Ok(self)
    }

    /// Sets the words for too many in flight. A table of keys that is full and an overload have words of their own, under the
    /// same code.
    pub fn over_max(mut self, wording: Wording) -> Self {
        self.keys_full.code.clone_from(&wording.code);
        self.overload.code.clone_from(&wording.code);
        self.over_max = wording;
        self
    }

    /// Sets the words for too many starts.
    pub fn over_rate(mut self, wording: Wording) -> Self {
        self.over_rate = wording;
        self
    }

    /// Returns the response to a refused request. The request's headers say which format its client reads.
    pub fn refuse(&self, refusal: &Refusal, request: &HeaderMap) -> Response<Bytes> {
        self.tell(refusal, is_grpc(request)).into()
    }

    /// Returns the refusal in its parts, for a client that speaks gRPC or not.
    pub fn tell(&self, refusal: &Refusal, is_grpc: bool) -> Told {
        let kind = match refusal.reason {
            Reason::Rate => Kind::OverRate,
            Reason::KeysFull => Kind::KeysFull,
            _ => Kind::OverMax,
        };
        // A full table of keys, a pause, a close and a store that is away are nobody's budget.
        let is_budget = !matches!(
            refusal.reason,
            Reason::KeysFull | Reason::Paused | Reason::Closed | Reason::Unreachable
        );
        let facts = Facts {
            reason: refusal.reason.as_str(),
            kind,
            is_budget,
            code: refusal.code(),
            max: refusal.max,
            in_use: refusal.in_use,
            waiting: refusal.waiting,
            retry_after: refusal.retry_after,
        };
        self.write(&facts, is_grpc)
    }

    /// The response to a request that was shed.
    pub(crate) fn shed(&self, request: &HeaderMap) -> Response<Bytes> {
        let facts = Facts {
            reason: OVERLOAD,
            kind: Kind::Overload,
            is_budget: true,
            code: Code::Refused,
            max: None,
            in_use: 0,
            waiting: 0,
            retry_after: None,
        };
        self.write(&facts, is_grpc(request)).into()
    }

    /// The response to a request whose key could not be told, because the code that was asked for it panicked.
    pub(crate) fn misconfigured(&self, request: &HeaderMap) -> Response<Bytes> {
        let (status, code) = (StatusCode::INTERNAL_SERVER_ERROR, Code::Misconfigured.as_str());
        let message = "Could not determine which limit applies to this request.";
        if is_grpc(request) {
            return Told::grpc(status, message.as_bytes()).into();
        }
        self.fail(status, code, "Misconfigured", message)
    }

    /// Returns another failure in the same format: what a gateway says if an upstream does not answer, for example.
    pub fn fail(&self, status: StatusCode, code: &str, title: &str, message: &str) -> Response<Bytes> {
        let (code, title, message) = (escaped(code), escaped(title), escaped(message));
        let put_message = |body: &mut Vec<u8>| body.extend_from_slice(message.as_bytes());
        let mut body = Vec::with_capacity(FRAME + code.len() + title.len() + message.len());
        match self.format {
            Format::Problem => put_problem(&mut body, status, &code, &title, put_message, &[]),
            Format::Envelope => put_envelope(&mut body, &code, &title, put_message),
        }
        Told::json(self.format, status, body).into()
    }

    fn write(&self, facts: &Facts, is_grpc: bool) -> Told {
        let status = if facts.is_budget { self.status } else { StatusCode::SERVICE_UNAVAILABLE };
        let wording = match facts.kind {
            Kind::OverMax => &self.over_max,
            Kind::OverRate => &self.over_rate,
            Kind::KeysFull => &self.keys_full,
            Kind::Overload => &self.overload,
        };
        let retry_after = whole_seconds(facts.retry_after.unwrap_or(self.retry_after)).max(1);
        let Facts { max, in_use, waiting, .. } = *facts;
        let numbers = Numbers { max, in_use, waiting, retry_after };
        let mut told = if is_grpc {
            Told::grpc(status, &wording.message(&numbers))
        } else {
            let put_message = |body: &mut Vec<u8>| wording.put_message(&numbers, body);
            let mut body = Vec::with_capacity(FRAME + wording.len());
            let (code, title) = (&wording.code, &wording.title);
            match self.format {
                Format::Problem => {
                    let members =
                        [",\"code\":\"", facts.code.as_str(), "\",\"reason\":\"", facts.reason, "\""];
                    put_problem(&mut body, status, code, title, put_message, &members);
                }
                Format::Envelope => put_envelope(&mut body, code, title, put_message),
            }
            Told::json(self.format, status, body)
        };
        told.reason = Some(facts.reason);
        told.retry_after = (!self.retry_after.is_zero()).then_some(retry_after);
        told
    }
}

impl Told {
    fn json(format: Format, status: StatusCode, body: Vec<u8>) -> Self {
        let kind = match format {
            Format::Problem => "application/problem+json",
            Format::Envelope => "application/json",
        };
        Told { status, kind, grpc: None, reason: None, retry_after: None, body }
    }

    fn grpc(status: StatusCode, message: &[u8]) -> Self {
        let (resource_exhausted, internal, unavailable) = ("8", "13", "14");
        let code = match status {
            StatusCode::TOO_MANY_REQUESTS => resource_exhausted,
            StatusCode::INTERNAL_SERVER_ERROR => internal,
            _ => unavailable,
        };
        let mut text = String::new();
        for &byte in message {
            match byte {
                b'%' | ..b' ' | 0x7f.. => {
                    write!(text, "%{byte:02X}").expect("a string takes all that is written");
                }
                _ => text.push(char::from(byte)),
            }
        }
        let grpc = Some(Grpc { status: code, message: text });
        let (status, body) = (StatusCode::OK, Vec::new());
        Told { status, kind: GRPC, grpc, reason: None, retry_after: None, body }
    }

    /// Whether a client that sends a body of this `Content-Type` speaks gRPC.
    pub fn is_for_grpc(content_type: &[u8]) -> bool {
        content_type.starts_with(GRPC.as_bytes())
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Writes its headers as lines of HTTP/1.1, except the body's length and the connection's.
    pub fn write_lines(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(b"content-type: ");
        text.extend_from_slice(self.kind.as_bytes());
        text.extend_from_slice(b"\r\ncache-control: no-store\r\n");
        if let Some(Grpc { status, message }) = &self.grpc {
            text.extend_from_slice(b"grpc-status: ");
            text.extend_from_slice(status.as_bytes());
            text.extend_from_slice(b"\r\ngrpc-message: ");
            text.extend_from_slice(message.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        if let Some(reason) = self.reason {
            text.extend_from_slice(b"flowgate-refusal: ");
            text.extend_from_slice(reason.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        if let Some(retry_after) = self.retry_after {
            text.extend_from_slice(b"retry-after: ");
            push_number(text, retry_after);
            text.extend_from_slice(b"\r\n");
        }
    }
}

impl From<Told> for Response<Bytes> {
    fn from(told: Told) -> Self {
        let Told { status, kind, grpc, reason, retry_after, body } = told;
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        *headers = HeaderMap::with_capacity(MOST_HEADERS);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        if let Some(Grpc { status, message }) = grpc {
            headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
            let message = HeaderValue::try_from(message).expect("what is no text is written in digits");
            headers.insert(GRPC_MESSAGE, message);
        }
        if let Some(reason) = reason {
            headers.insert(REFUSAL, HeaderValue::from_static(reason));
        }
        if let Some(retry_after) = retry_after {
            headers.insert(header::RETRY_AFTER, number(retry_after));
        }
        response
    }
}

fn is_grpc(request: &HeaderMap) -> bool {
    request.get(header::CONTENT_TYPE).is_some_and(|kind| Told::is_for_grpc(kind.as_bytes()))
}

/// A problem document of texts as they stand in JSON.
fn put_problem(
    body: &mut Vec<u8>,
    status: StatusCode,
    code: &str,
    title: &str,
    put_detail: impl FnOnce(&mut Vec<u8>),
    members: &[&str],
) {
    for text in
        ["{\"type\":\"urn:flowgate:error:", code, "\",\"title\":\"", title, "\",\"status\":", status.as_str()]
    {
        body.extend_from_slice(text.as_bytes());
    }
    body.extend_from_slice(b",\"detail\":\"");
    put_detail(body);
    body.push(b'"');
    members.iter().for_each(|text| body.extend_from_slice(text.as_bytes()));
    body.push(b'}');
}

/// The envelope of texts as they stand in JSON. The vendor's own client asks for `log_url`, even where there is none.
fn put_envelope(body: &mut Vec<u8>, code: &str, title: &str, put_message: impl FnOnce(&mut Vec<u8>)) {
    for text in ["{\"status\":\"error\",\"error\":{\"code\":\"", code, "\",\"title\":\"", title] {
        body.extend_from_slice(text.as_bytes());
    }
    body.extend_from_slice(b"\",\"message\":\"");
    put_message(body);
    body.extend_from_slice(b"\",\"log_url\":null}}");
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
