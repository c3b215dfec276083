//! Request headers become a checked [`Spec`], once.
//!
//! Owns the names of the headers, whichever case they come in, and the prefixes by which a callback gets settings of its own.

use http::{HeaderName, HeaderValue};

use super::{
    Callback, Dedupe, Destination, Expression, Fault, Flow, Spec, Start, name, redact::Redact, span,
};

const PREFIX: &str = "upstash-";
const FORWARD: &str = "upstash-forward-";
const CALLBACK: &str = "upstash-callback-";
const FAILURE_CALLBACK: &str = "upstash-failure-callback-";
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// A callback of a callback of a callback.
const DEEPEST: usize = 3;
const MOST_RETRIES: u32 = 900;
const LONGEST_ATTEMPT: u64 = 24 * 60 * 60 * 1000;
/// Ten thousand years: what does not fit is a slip of the unit.
const LATEST: u64 = 10_000_000_000;
const MOST_HEADERS: usize = 256;
/// They belong to a connection, not to a message; and whoever may publish need not tell everybody with what.
const NEVER_FORWARDED: [&str; 11] = [
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "proxy-connection",
    "proxy-authorization",
    "expect",
];

/// Headers as they came, names in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(Vec<(String, String)>);

impl Given {
    /// One more.
    pub(crate) fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_ascii_lowercase(), value.into()));
    }

    /// The last value of a header that is not empty.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// These headers, over others that they replace.
    pub(crate) fn over(mut self, others: &Given) -> Given {
        for (name, value) in &others.0 {
            if !self.0.iter().any(|(known, _)| known == name) {
                self.0.push((name.clone(), value.clone()));
            }
        }
        self
    }

    /// All of them, names in lower case.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.0.iter().cloned()
    }

    /// Those with this prefix, under the plain one.
    fn behind(&self, prefix: &str) -> Given {
        let inner = |(name, value): &(String, String)| {
            name.strip_prefix(prefix).map(|rest| (format!("{PREFIX}{rest}"), value.clone()))
        };
        Given(self.0.iter().filter_map(inner).collect())
    }
}

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Given {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut given = Given::default();
        for (name, value) in pairs {
            given.add(name.as_ref(), value);
        }
        given
    }
}

/// What these headers ask for, or the first of them that cannot be.
pub(crate) fn read(given: &Given) -> Result<Spec, Fault> {
    at_depth(given, 0)
}

fn at_depth(given: &Given, depth: usize) -> Result<Spec, Fault> {
    let field = |name: &str| given.last(name);
    Ok(Spec {
        method: field("upstash-method").map(method).transpose()?.unwrap_or_default(),
        headers: forwarded(given)?,
        start: start(given)?,
        retries: field("upstash-retries").map(retries).transpose()?,
        retry_delay: field("upstash-retry-delay").map(Expression::read).transpose()?,
        timeout: field("upstash-timeout").map(timeout).transpose()?,
        callback: callback(given, "upstash-callback", CALLBACK, depth)?,
        failure_callback: callback(given, "upstash-failure-callback", FAILURE_CALLBACK, depth)?,
        dedupe: dedupe(given)?,
        flow: flow(given)?,
        labels: labels(field("upstash-label"))?,
        redact: field("upstash-redact-fields").map(Redact::read).transpose()?.unwrap_or_default(),
    })
}

fn method(text: &str) -> Result<String, Fault> {
    let upper = text.to_ascii_uppercase();
    if !METHODS.contains(&upper.as_str()) {
        return Err(Fault::new("Upstash-Method", text, "GET, POST, PUT, PATCH or DELETE"));
    }
    Ok(if upper == "POST" { String::new() } else { upper })
}

fn retries(text: &str) -> Result<u32, Fault> {
    let number = text.parse().ok().filter(|number| *number <= MOST_RETRIES);
    number.ok_or_else(|| Fault::new("Upstash-Retries", text, "a whole number from 0 to 900"))
}

fn timeout(text: &str) -> Result<u64, Fault> {
    let millis = span("Upstash-Timeout", text)?.as_millis() as u64;
    if !(1..=LONGEST_ATTEMPT).contains(&millis) {
        return Err(Fault::new("Upstash-Timeout", text, "a span from 1ms to 24h, like 30s"));
    }
    Ok(millis)
}

fn start(given: &Given) -> Result<Option<Start>, Fault> {
    if let Some(text) = given.last("upstash-not-before") {
        let seconds = text.split('.').next().unwrap_or_default().parse().ok().filter(|at| *at < LATEST);
        let wrong = || Fault::new("Upstash-Not-Before", text, "a moment in seconds since 1970, like 1767225600");
        return seconds.map(|at| Some(Start::At(at))).ok_or_else(wrong);
    }
    let delay = given.last("upstash-delay").map(|text| span("Upstash-Delay", text)).transpose()?;
    Ok(delay.filter(|delay| !delay.is_zero()).map(|delay| Start::After(delay.as_millis() as u64)))
}

fn dedupe(given: &Given) -> Result<Option<Dedupe>, Fault> {
    if let Some(id) = given.last("upstash-deduplication-id") {
        if id.len() > 400 {
            return Err(Fault::new("Upstash-Deduplication-Id", id, "up to 400 bytes of text"));
        }
        return Ok(Some(Dedupe::Id(id.to_owned())));
    }
    let said = given.last("upstash-content-based-deduplication");
    let is_wanted = said.map(|text| boolean("Upstash-Content-Based-Deduplication", text)).transpose()?;
    Ok(is_wanted.unwrap_or(false).then_some(Dedupe::Content))
}

fn boolean(field: &str, text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::new(field, text, "true or false")),
    }
}

fn flow(given: &Given) -> Result<Option<Flow>, Fault> {
    let value = given.last("upstash-flow-control-value");
    match given.last("upstash-flow-control-key") {
        Some(key) => Flow::read(key, value).map(Some),
        None if value.is_some() => {
            Err(Fault::text("Upstash-Flow-Control-Value is set without a key; send Upstash-Flow-Control-Key as well"))
        }
        None => Ok(None),
    }
}

fn labels(text: Option<&str>) -> Result<Vec<String>, Fault> {
    let each = text.unwrap_or_default().split(',').map(str::trim).filter(|label| !label.is_empty());
    each.map(|label| name("Upstash-Label", label).map(str::to_owned)).collect()
}

fn callback(given: &Given, field: &str, prefix: &str, depth: usize) -> Result<Option<Box<Callback>>, Fault> {
    let Some(text) = given.last(field) else { return Ok(None) };
    let title = canonical(field);
    if depth >= DEEPEST {
        return Err(Fault::new(&title, text, "no callback of a callback of a callback"));
    }
    let Ok(Destination::Url(url)) = Destination::read(text) else {
        return Err(Fault::new(&title, text, "a URL that begins with http:// or https://"));
    };
    Ok(Some(Box::new(Callback { url, spec: at_depth(&given.behind(prefix), depth + 1)? })))
}

/// What the endpoint gets: content type, and what the sender asked to be forwarded.
fn forwarded(given: &Given) -> Result<Vec<(String, String)>, Fault> {
    let all = given.last("upstash-header-forward").map(|text| boolean("Upstash-Header-Forward", text));
    let is_all = all.transpose()?.unwrap_or(false);
    let mut headers = Vec::new();
    for (name, value) in &given.0 {
        let (target, is_named) = match name.strip_prefix(FORWARD) {
            Some(target) => (target, true),
            None => (name.as_str(), false),
        };
        let is_wanted = is_named
            || target == "content-type"
            || is_all && !target.starts_with(PREFIX) && target != "authorization";
        if !is_wanted || NEVER_FORWARDED.contains(&target) {
            continue;
        }
        let title = format!("Upstash-Forward-{}", canonical(target));
        HeaderName::from_bytes(target.as_bytes())
            .map_err(|_| Fault::new(&title, target, "the name of a header behind the prefix"))?;
        HeaderValue::from_str(value)
            .map_err(|_| Fault::new(&title, value, "a header's value: text without line breaks"))?;
        headers.push((canonical(target), value.clone()));
        if headers.len() > MOST_HEADERS {
            return Err(Fault::text("more than 256 headers are to be forwarded; send fewer"));
        }
    }
    // What is named goes before what came along.
    if headers.iter().filter(|(name, _)| name == "Content-Type").count() > 1 {
        let first = headers.iter().position(|(name, _)| name == "Content-Type");
        headers = headers
            .into_iter()
            .enumerate()
            .filter(|(index, (name, _))| name != "Content-Type" || Some(*index) == first)
            .map(|(_, header)| header)
            .collect();
    }
    Ok(headers)
}

/// A header's name as HTTP writes it: `content-type` is `Content-Type`.
pub(crate) fn canonical(name: &str) -> String {
    let mut is_first = true;
    let letter = |letter: char| {
        let written = if is_first { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        is_first = letter == '-';
        written
    };
    name.chars().map(letter).collect()
}
