//! Request headers become a checked [`Spec`], once.
//!
//! Owns the names of the headers, whichever case they come in, and the prefixes by which a callback gets settings of its own.

use http::{HeaderName, HeaderValue};

use super::{
    Callback, Dedupe, Destination, Expression, Fault, Flow, Spec, Start, name, redact::Redact, seconds, span,
};

const PREFIX: &str = "upstash-";
const FORWARD: &str = "upstash-forward-";
const CALLBACK: &str = "upstash-callback-";
const FAILURE_CALLBACK: &str = "upstash-failure-callback-";
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// A callback of a callback of a callback.
const DEEPEST: usize = 3;
pub(crate) const MOST_RETRIES: u32 = 900;
const LONGEST_ATTEMPT: u64 = 24 * 60 * 60 * 1000;
/// Ten thousand years: what does not fit is a slip of the unit.
const LATEST: u64 = 10_000_000_000;
const MOST_HEADERS: usize = 256;
/// All that headers say of a message, names and values: every line of its log has it. Workflow clients send what is forwarded
/// twice, for the run and for its failure function.
const MOST_OF_HEADERS: usize = 128 * 1024;
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

    /// A list that may come in several lines, as one: whoever passes it on may have split it (RFC 9110, 5.3).
    fn list(&self, name: &str) -> Option<String> {
        let lines = self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.trim());
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }

    /// These headers, over others that they replace.
    pub(crate) fn over(mut self, others: &Given) -> Given {
        let own = self.0.len();
        for (name, value) in &others.0 {
            if !self.0[..own].iter().any(|(known, _)| known == name) {
                self.0.push((name.clone(), value.clone()));
            }
        }
        self
    }

    /// All of them, names in lower case.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.0.iter().cloned()
    }

    /// What a message is made of, and nothing else of the request that brought it: settings, what is forwarded, and where it
    /// stands in a trace. Names in lower case.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.of_message().cloned()
    }

    /// How large that is, in bytes.
    fn size(&self) -> usize {
        self.of_message().map(|(name, value)| name.len() + value.len()).sum()
    }

    fn of_message(&self) -> impl Iterator<Item = &(String, String)> {
        let is_all = self.takes_all();
        self.0.iter().filter(move |(name, _)| is_kept(name, is_all))
    }

    /// Whether a header of this name, in lower case, would be kept.
    pub(crate) fn takes(&self, name: &str) -> bool {
        is_kept(name, self.takes_all())
    }

    fn takes_all(&self) -> bool {
        self.last("upstash-header-forward").is_some_and(|text| text.eq_ignore_ascii_case("true"))
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
    let size = given.size();
    if size > MOST_OF_HEADERS {
        return Err(Fault::text(format!(
            "the headers of this message, including those to forward, have {size} bytes; send up to {MOST_OF_HEADERS}, \
             and the rest in the body"
        )));
    }
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
        labels: labels(given.list("upstash-label").as_deref())?,
        redact: given
            .list("upstash-redact-fields")
            .map(|fields| Redact::read(&fields))
            .transpose()?
            .unwrap_or_default(),
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
    let millis = seconds(text).and_then(|span| u64::try_from(span.as_millis()).ok());
    let millis = millis.filter(|millis| (1..=LONGEST_ATTEMPT).contains(millis));
    millis.ok_or_else(|| Fault::new("Upstash-Timeout", text, "a span from 1ms to 24h, like 30s"))
}

fn start(given: &Given) -> Result<Option<Start>, Fault> {
    if let Some(text) = given.last("upstash-not-before") {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_number = part.bytes().all(|digit| digit.is_ascii_digit());
        let seconds = whole.parse().ok().filter(|at| is_number && *at < LATEST);
        let wrong =
            || Fault::new("Upstash-Not-Before", text, "a moment in seconds since 1970, like 1767225600");
        return seconds.map(|at| Some(Start::At(at))).ok_or_else(wrong);
    }
    let delay = given.last("upstash-delay").map(|text| span("Upstash-Delay", text)).transpose()?;
    Ok(delay.filter(|delay| !delay.is_zero()).map(|delay| Start::After(delay.as_millis() as u64)))
}

fn dedupe(given: &Given) -> Result<Option<Dedupe>, Fault> {
    if let Some(id) = given.last("upstash-deduplication-id") {
        if id.len() > 400 || id.contains('\0') {
            return Err(Fault::new(
                "Upstash-Deduplication-Id",
                id,
                "up to 400 bytes of text, without a zero byte",
            ));
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
    let value = given.list("upstash-flow-control-value");
    match given.last("upstash-flow-control-key") {
        Some(key) => Flow::read(key, value.as_deref()).map(Some),
        None if value.is_some() => Err(Fault::text(
            "Upstash-Flow-Control-Value is set without a key; send Upstash-Flow-Control-Key as well",
        )),
        None => Ok(None),
    }
}

fn labels(text: Option<&str>) -> Result<Vec<String>, Fault> {
    let each = text.unwrap_or_default().split(',').map(str::trim).filter(|label| !label.is_empty());
    each.map(|label| name("Upstash-Label", label).map(str::to_owned)).collect()
}

fn callback(given: &Given, field: &str, prefix: &str, depth: usize) -> Result<Option<Box<Callback>>, Fault> {
    let settings = given.behind(prefix);
    let read = || at_depth(&settings, depth + 1).map_err(|fault| fault.behind(&canonical(prefix)));
    let Some(text) = given.last(field) else {
        // Nobody is told; what cannot be is a mistake all the same.
        if depth < DEEPEST && !settings.0.is_empty() {
            read()?;
        }
        return Ok(None);
    };
    let title = canonical(field);
    if depth >= DEEPEST {
        return Err(Fault::new(&title, text, "no callback of a callback of a callback"));
    }
    Ok(Some(Box::new(Callback { url: Destination::url(&title, text)?, spec: read()? })))
}

/// What the endpoint gets: content type, and what the sender asked to be forwarded.
fn forwarded(given: &Given) -> Result<Vec<(String, String)>, Fault> {
    let all = given.last("upstash-header-forward").map(|text| boolean("Upstash-Header-Forward", text));
    let is_all = all.transpose()?.unwrap_or(false);
    let type_at = type_at(given);
    let mut headers = Vec::new();
    for (index, (name, value)) in given.0.iter().enumerate() {
        let (target, is_named) = match name.strip_prefix(FORWARD) {
            Some(target) => (target, true),
            None => (name.as_str(), false),
        };
        let is_wanted = match target {
            "content-type" => type_at == Some(index),
            _ => is_named || is_all && is_forwarded_with_all(target),
        };
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
            return Err(Fault::text("more than 256 headers to forward; send fewer"));
        }
    }
    Ok(headers)
}

/// Where the one type stands that a body has. What is named goes before what came along: a sender's own client adds that.
fn type_at(given: &Given) -> Option<usize> {
    let at = |wanted: &str| given.0.iter().position(|(name, _)| name == wanted);
    at("upstash-forward-content-type").or_else(|| at("content-type"))
}

/// Whether a message is made of it.
fn is_kept(name: &str, is_all: bool) -> bool {
    name.starts_with(PREFIX)
        || ["content-type", "traceparent", "tracestate"].contains(&name)
        || is_all && is_forwarded_with_all(name)
}

/// Whether a header goes along where all of them do: not what was meant for this server alone.
fn is_forwarded_with_all(name: &str) -> bool {
    !name.starts_with(PREFIX)
        && !name.starts_with("x-flowgate-")
        && !["authorization", "cookie", "flowgate-namespace"].contains(&name)
        && !NEVER_FORWARDED.contains(&name)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(pairs: &[(&str, &str)]) -> Result<Spec, Fault> {
        read(&pairs.iter().copied().collect())
    }

    #[test]
    fn f7_a_list_in_several_lines_is_one_list() {
        // Seen to fail: with the last line alone, a body that was to be redacted was told, and the first label was lost.
        let spec = spec(&[
            ("Upstash-Redact-Fields", "body"),
            ("Upstash-Redact-Fields", "header[X-One]"),
            ("Upstash-Label", "one,"),
            ("Upstash-Label", ""),
            ("Upstash-Label", "two"),
            ("Upstash-Flow-Control-Key", "key"),
            ("Upstash-Flow-Control-Value", "parallelism=2"),
            ("Upstash-Flow-Control-Value", "rate=3"),
        ])
        .expect("all of it is fine");
        assert_eq!(spec.redact, Redact::read("body,header[X-One]").expect("a list"));
        assert_eq!(spec.labels, ["one", "two"]);
        assert_eq!(spec.flow.map(|flow| (flow.parallelism, flow.rate.is_some())), Some((Some(2), true)));
        let settings: Given = [("upstash-label", "a"), ("upstash-label", "b")].into_iter().collect();
        let both = read(&Given::default().over(&settings)).expect("labels");
        assert_eq!(both.labels, ["a", "b"], "of the query as well");
    }

    #[test]
    fn headers_are_read_in_any_case_and_have_defaults() {
        let plain = spec(&[]).expect("nothing is fine");
        assert_eq!((plain.method(), plain.retries()), ("POST", 3));
        let all = spec(&[
            ("CONTENT-TYPE", "text/plain"),
            ("upstash-method", "put"),
            ("Upstash-Forward-X-One", "1"),
            ("Upstash-Forward-x-one", "2"),
            ("Upstash-Delay", "1m"),
            ("Upstash-Retries", "0"),
            ("Upstash-Retry-Delay", "1000"),
            ("Upstash-Timeout", "30"),
            ("Upstash-Deduplication-Id", "once"),
            ("Upstash-Flow-Control-Key", "key"),
            ("Upstash-Flow-Control-Value", "parallelism=2"),
            ("Upstash-Label", "one, two"),
            ("Upstash-Redact-Fields", "body"),
            ("Upstash-Telemetry-Sdk", "never forwarded"),
            ("X-Other", "not asked for"),
        ])
        .expect("all of it is fine");
        assert_eq!((all.method(), all.retries(), all.timeout), ("PUT", 0, Some(30_000)));
        let forwarded = [("Content-Type", "text/plain"), ("X-One", "1"), ("X-One", "2")];
        assert_eq!(all.headers, forwarded.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((all.start, all.dedupe), (Some(Start::After(60_000)), Some(Dedupe::Id("once".into()))));
        assert_eq!(all.flow.map(|flow| flow.parallelism), Some(Some(2)));
        assert_eq!(all.labels, ["one", "two"]);
    }

    #[test]
    fn s2_a_header_of_a_callback_is_told_by_its_own_name() {
        // Seen to fail: with what is behind the prefix told as it is read, "Upstash-Retries is"; and without a URL it
        // was accepted.
        let to = ("Upstash-Callback", "https://example.com");
        let failure = ("Upstash-Failure-Callback", "https://example.com");
        for (url, name, value, says) in [
            (to, "Upstash-Callback-Retries", "x", "Upstash-Callback-Retries is \"x\"; send"),
            (to, "Upstash-Callback-Delay", "Upstash-x", "Upstash-Callback-Delay is \"Upstash-x\""),
            (failure, "Upstash-Failure-Callback-Timeout", "0s", "Upstash-Failure-Callback-Timeout is"),
            (
                to,
                "Upstash-Callback-Flow-Control-Value",
                "rate=1",
                "send Upstash-Callback-Flow-Control-Key as",
            ),
            (to, "Upstash-Callback-Callback-Retries", "x", "Upstash-Callback-Callback-Retries is \"x\""),
        ] {
            for pairs in [&[url, (name, value)][..], &[(name, value)]] {
                let fault = spec(pairs).expect_err(name).to_string();
                assert!(fault.starts_with("Upstash-") && fault.contains(says), "{pairs:?}: {fault}");
            }
        }
        assert!(spec(&[("Upstash-Callback-Retries", "2")]).is_ok(), "a setting of nobody's");
    }

    #[test]
    fn not_before_beats_a_delay_and_a_zero_delay_is_none() {
        let both =
            spec(&[("Upstash-Delay", "1h"), ("Upstash-Not-Before", "1767225600")]).expect("both are fine");
        assert_eq!(both.start, Some(Start::At(1_767_225_600)));
        assert!(spec(&[("Upstash-Not-Before", "1767225600.25")]).is_ok());
        for text in ["5.x", "5.-1", ".5", "x", "-5"] {
            assert!(spec(&[("Upstash-Not-Before", text)]).is_err(), "{text}");
        }
        assert_eq!(spec(&[("Upstash-Delay", "0s")]).expect("no delay").start, None);
    }

    #[test]
    fn a_callback_has_settings_of_its_own_also_for_its_own_failure() {
        let nested = spec(&[
            ("Upstash-Callback", "https://e.com/back"),
            ("Upstash-Callback-Retries", "1"),
            ("Upstash-Callback-Forward-X-Mine", "1"),
            ("Upstash-Callback-Flow-Control-Key", "back"),
            ("Upstash-Callback-Flow-Control-Value", "rate=1"),
            ("Upstash-Callback-Failure-Callback", "https://e.com/inner"),
            ("Upstash-Callback-Failure-Callback-Retries", "2"),
            ("Upstash-Failure-Callback", "https://e.com/failure"),
            ("Upstash-Failure-Callback-Workflow-Runid", "kept for later"),
        ])
        .expect("all of it is fine");
        let back = nested.callback.expect("a callback");
        assert_eq!((back.url.as_str(), back.spec.retries), ("https://e.com/back", Some(1)));
        assert_eq!(back.spec.headers, [("X-Mine".to_owned(), "1".to_owned())]);
        assert_eq!(back.spec.flow.expect("a key").key, "back");
        assert_eq!(back.spec.failure_callback.expect("a callback").spec.retries, Some(2));
        assert_eq!(nested.failure_callback.expect("a callback").url, "https://e.com/failure");
        assert!(spec(&[("Upstash-Callback", "https://e.com"), ("Upstash-Callback-Retries", "x")]).is_err());
    }

    #[test]
    fn all_headers_are_forwarded_only_if_that_is_asked_for() {
        let given = [
            ("X-Github-Event", "push"),
            ("Authorization", "Bearer secret"),
            ("Host", "us"),
            ("Cookie", "flowgate_console=secret"),
            ("X-Flowgate-Csrf", "secret"),
            ("Flowgate-Namespace", "a"),
            ("Upstash-Label", "l"),
        ];
        assert_eq!(spec(&given).expect("fine").headers, []);
        let mut all = given.to_vec();
        all.push(("Upstash-Header-Forward", "true"));
        let forwarded = [("X-Github-Event".to_owned(), "push".to_owned())];
        assert_eq!(spec(&all).expect("fine").headers, forwarded);
        let kept = |given: &[(&str, &str)]| {
            let given: Given = given.iter().copied().collect();
            given.kept().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(kept(&given), ["upstash-label"]);
        assert_eq!(kept(&all), ["x-github-event", "upstash-label", "upstash-header-forward"]);
        // One that is named is meant.
        let named = [("Upstash-Forward-Authorization", "Bearer theirs")];
        assert_eq!(spec(&named).expect("fine").headers.len(), 1);
    }

    #[test]
    fn s4_headers_of_a_message_have_a_bound_however_they_come() {
        // Seen to fail: with a bound a hundred times as large.
        let large = "a".repeat(MOST_OF_HEADERS / 2);
        for name in
            ["Upstash-Forward-X-One", "Upstash-Label", "Upstash-Callback-Forward-X-One", "Content-Type"]
        {
            let fault =
                spec(&[(name, &large), ("Upstash-Forward-X-Two", &large)]).expect_err(name).to_string();
            assert!(fault.contains("131072") && fault.contains("bytes"), "{fault}");
        }
        assert!(spec(&[("Upstash-Forward-X-One", &large), ("Cookie", &large)]).is_ok(), "it goes no further");
        let all = [("Upstash-Header-Forward", "true"), ("X-One", &large), ("X-Two", &large)];
        assert!(spec(&all).is_err());
    }

    #[test]
    fn f7_a_type_that_is_named_goes_before_one_that_came_along_in_any_order() {
        // Seen to fail: with the first of them taken, "a" went out where it came first.
        let (along, named) = (("Content-Type", "a"), ("Upstash-Forward-Content-Type", "b"));
        for pairs in [&[along, named][..], &[named, along], &[along, named, along]] {
            assert_eq!(spec(pairs).expect("fine").headers, [("Content-Type".to_owned(), "b".to_owned())]);
        }
        for alone in [along, named] {
            let forwarded = spec(&[alone]).expect("fine").headers;
            assert_eq!(forwarded, [("Content-Type".to_owned(), alone.1.to_owned())]);
        }
    }

    #[test]
    fn names_are_written_as_http_writes_them() {
        for (name, written) in
            [("content-type", "Content-Type"), ("X-API-KEY", "X-Api-Key"), ("etag", "Etag")]
        {
            assert_eq!(canonical(name), written);
        }
    }

    proptest! {
        #[test]
        fn any_headers_are_a_spec_or_a_fault(
            pairs in prop::collection::vec(
                ("(upstash-)?(callback-|failure-callback-)?(forward-)?[a-z-]{0,12}|upstash-(delay|retries|timeout|label|method|not-before|callback)", "\\PC{0,20}"),
                0..8,
            ),
        ) {
            let _ = read(&pairs.iter().map(|(name, value)| (name, value.as_str())).collect());
        }

        #[test]
        fn what_was_read_comes_back_from_a_store(
            retries in prop::option::of(0_u32..900),
            delay in prop::option::of(1_u64..1_000_000),
            label in prop::option::of("[a-z]{1,8}"),
            body in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut given = Given::default();
            if let Some(retries) = retries { given.add("Upstash-Retries", retries.to_string()); }
            if let Some(delay) = delay { given.add("Upstash-Delay", format!("{delay}ms")); }
            if let Some(label) = label { given.add("Upstash-Label", label); }
            let mut message = super::super::Message { head: Default::default(), body: body.into() };
            message.head.spec = read(&given).expect("all of it is fine");
            message.head.url = "https://example.com".into();
            let bytes = bytes::Bytes::from(message.to_bytes());
            prop_assert_eq!(super::super::Message::from_bytes(&bytes), Ok(message));
        }
    }
}
