//! Asks a running server.

use std::io::{self, Write};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde_json::Value;
use std::time::Duration;

use super::{failure::Failure, options::ServerOptions};
use crate::{
    delivery::Egress,
    office::DEV_TOKEN,
    terminal::{json, plain_lines},
};

/// More than a server tells at once.
const MOST_OF_AN_ANSWER: usize = 64 * 1024 * 1024;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and the token to ask it with.
pub(crate) struct Server<'a> {
    options: &'a ServerOptions,
    runtime: tokio::runtime::Runtime,
    egress: Egress,
}

impl<'a> Server<'a> {
    pub(crate) fn new(options: &'a ServerOptions) -> Result<Self, Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        Ok(Server { options, runtime, egress: Egress::straight().reading(MOST_OF_AN_ANSWER) })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.options.url
    }

    /// Asks, and gives what was answered; `null`, if that is nothing.
    pub(crate) fn ask(&self, method: Method, path: &str) -> Result<Value, Failure> {
        self.send(method, path, &[], "")
    }

    /// The same, with headers and a body.
    pub(super) fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Value, Failure> {
        let url = base(&self.options.url);
        let uri: Uri = format!("{url}{path}").parse().map_err(|_| Failure::Url(url.to_owned()))?;
        if uri.host().is_none() {
            return Err(Failure::Url(url.to_owned()));
        }
        let given = self.options.token.as_deref().filter(|token| !token.is_empty());
        let token = given.unwrap_or(DEV_TOKEN);
        let mut request =
            Request::builder().method(method).uri(uri).header("authorization", format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Bytes::from(body.to_owned()));
        let request = request.map_err(|error| Failure::Refused(wrong_header(token, headers, &error)))?;
        let unreachable = |why: String| Failure::Unreachable { url: url.to_owned(), why };
        let answer = self.runtime.block_on(self.egress.send(request, PATIENCE));
        let answer = answer.map_err(|error| unreachable(why(url, &error.to_string())))?;
        if answer.body.len() == MOST_OF_AN_ANSWER {
            let text = "the answer is longer than 64 MiB; ask for less of it, with --count or --search";
            return Err(Failure::Refused(text.to_owned()));
        }
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status.is_success() {
            return Ok(told);
        }
        if answer.status == StatusCode::UNAUTHORIZED && given.is_none() {
            return Err(Failure::NoToken);
        }
        let said = told["error"]
            .as_str()
            .map_or_else(|| format!("the server answered {}", answer.status), str::to_owned);
        Err(Failure::Refused(said))
    }

    /// Prints the answer: as JSON if that was asked for, else in words.
    pub(crate) fn print(&self, value: &Value, words: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
        match self.options.json {
            true => say_json(value),
            false => say(&words(value)),
        }
    }
}

/// Prints it, whoever wrote it.
pub(super) fn say(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(plain_lines(text).as_bytes()).map_err(Failure::Write)
}

/// Prints it for programs.
pub(super) fn say_json(value: &Value) -> Result<(), Failure> {
    io::stdout().write_all(json(value).as_bytes()).map_err(Failure::Write)
}

/// Where a server's paths begin: whoever gives the address of the API, as the server tells it, means the same.
fn base(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.strip_suffix("/v2").unwrap_or(url)
}

/// What listens may not speak TLS: then that is what has to change.
fn why(url: &str, error: &str) -> String {
    let is_plain = url.starts_with("https://") && error.contains("InvalidContentType");
    if is_plain { "it speaks HTTP there, not HTTPS".to_owned() } else { error.to_owned() }
}

/// Which header cannot be sent. A token is not repeated.
fn wrong_header(token: &str, headers: &[(String, String)], error: &http::Error) -> String {
    let is_wrong = |value: &str| HeaderValue::from_str(value).is_err();
    if is_wrong(token) {
        return "the token has characters that no header can carry; accepted: what `flowgate token create` printed".to_owned();
    }
    match headers.iter().find(|(_, value)| is_wrong(value)) {
        Some((name, value)) => format!("the header {name} is {value:?}; accepted: text on one line"),
        None => error.to_string(),
    }
}

/// A name as a part of a path.
pub(super) fn part(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.bytes()
        .map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A field that is a moment, in milliseconds, by the clock of UTC.
pub(super) fn moment(value: &Value) -> String {
    let at = value.as_i64().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%F %T").to_string())
}

/// A field as text, `-` where there is none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
