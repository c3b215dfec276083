//! A message as the request that its endpoint gets.
//!
//! Owns the headers, as the lines that a plain endpoint reads: most are written once and never looked up, and
//! a map of them costs more than writing them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};

use crate::{message::Message, wire::put_line};

/// What this server says in its own name. Whatever was forwarded under these names is replaced.
pub(super) struct Said<'a> {
    pub(super) id: &'a str,
    pub(super) retried: u32,
    pub(super) signature: &'a str,
    /// Where in a trace the request stands.
    pub(super) trace: Option<&'a str>,
    pub(super) trace_state: Option<&'a str>,
}

/// The names of what is said in every request, whoever else would use them.
const OWN: [HeaderName; 7] = [
    header::USER_AGENT,
    HeaderName::from_static("upstash-message-id"),
    HeaderName::from_static("upstash-retried"),
    HeaderName::from_static("upstash-signature"),
    HeaderName::from_static("upstash-caller-ip"),
    HeaderName::from_static("upstash-topic-name"),
    HeaderName::from_static("upstash-schedule-id"),
];
const TRACE: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// The bytes that are sent.
pub(super) fn body(message: &Message) -> Bytes {
    if message.head.spec.method() == "GET" { Bytes::new() } else { message.body.clone() }
}

/// A request whose headers are lines of text.
#[derive(Debug)]
pub(super) struct Written {
    /// Without these headers.
    pub(super) request: Request<Bytes>,
    lines: Vec<u8>,
}

impl Written {
    /// The lines, each with its end.
    pub(super) fn into_parts(self) -> (Request<Bytes>, Vec<u8>) {
        (self.request, self.lines)
    }

    /// The same with its headers in their map, for whoever looks at them.
    pub(super) fn read(self) -> Result<Request<Bytes>, http::Error> {
        let Written { mut request, lines } = self;
        read_lines(&lines, request.headers_mut())?;
        Ok(request)
    }
}

/// Puts lines into a map.
fn read_lines(lines: &[u8], headers: &mut HeaderMap) -> Result<(), http::Error> {
    for line in lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r")) {
        let end = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(end + 2..).unwrap_or_default();
        headers.append(HeaderName::from_bytes(&line[..end])?, HeaderValue::from_bytes(value)?);
    }
    Ok(())
}

/// The request, or why it cannot be made.
pub(super) fn request(message: &Message, said: &Said<'_>) -> Result<Written, http::Error> {
    let head = &message.head;
    let method: Method = head.spec.method().parse()?;
    let request = Request::builder().method(method).uri(&head.url).body(body(message))?;
    let mut lines = Vec::with_capacity(256 + said.signature.len() + head.spec.size());
    let mut put = |name: &HeaderName, value: &str| -> Result<(), http::Error> {
        is_value(value)?;
        put_line(&mut lines, name.as_str(), value.as_bytes());
        Ok(())
    };
    for (name, value) in &head.spec.headers {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        // A forwarded header stays unless we write it ourselves. With a trace of ours both trace headers go: the
        // state of another trace would be wrong beside ours.
        let is_ours = OWN.contains(&name) || said.trace.is_some() && TRACE.contains(&name);
        if !is_ours {
            put(&name, value)?;
        }
    }
    let counted;
    let retried = match said.retried {
        0 => "0",
        retried => {
            counted = retried.to_string();
            &counted
        }
    };
    let own = [
        Some("Upstash-QStash"),
        Some(said.id),
        Some(retried),
        Some(said.signature),
        head.caller.as_deref(),
        head.topic.as_deref(),
        head.schedule.as_deref(),
    ];
    let trace = [said.trace, said.trace.and(said.trace_state)];
    for (name, value) in OWN.iter().zip(own).chain(TRACE.iter().zip(trace)) {
        if let Some(value) = value {
            put(name, value)?;
        }
    }
    Ok(Written { request, lines })
}

/// Whether this is the value of a header: one line of text. Plain letters are known at a glance, the others are asked about.
fn is_value(value: &str) -> Result<(), http::Error> {
    // To the end in any case: so many bytes are looked at in one step.
    let is_text = |byte: u8| (byte == b'\t') | (32..127).contains(&byte);
    if value.bytes().fold(true, |is_all, byte| is_all & is_text(byte)) {
        return Ok(());
    }
    HeaderValue::from_str(value)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Given, read};

    #[test]
    fn what_was_forwarded_never_passes_for_what_this_server_says() {
        let given: Given = [
            ("Content-Type", "text/plain"),
            ("Upstash-Forward-X-Mine", "1"),
            ("Upstash-Forward-Upstash-Message-Id", "old"),
            ("Upstash-Forward-Upstash-Signature", "forged"),
            ("Upstash-Forward-Host", "elsewhere"),
            ("Upstash-Forward-Content-Length", "9"),
            ("Authorization", "Bearer secret"),
        ]
        .into_iter()
        .collect();
        let mut message = Message { head: Default::default(), body: Bytes::from_static(b"body") };
        message.head.spec = read(&given).expect("a spec");
        message.head.url = "https://example.com/p?q=1".into();
        let said = Said { id: "msg_1", retried: 2, signature: "signed", trace: None, trace_state: None };
        let request = request(&message, &said).and_then(Written::read).expect("a request");
        let told = |name: &str| request.headers().get(name).map(|value| value.to_str().expect("text"));
        assert_eq!(told("upstash-message-id"), Some("msg_1"));
        assert_eq!(told("upstash-signature"), Some("signed"));
        assert_eq!(told("upstash-retried"), Some("2"));
        assert_eq!((told("x-mine"), told("content-type")), (Some("1"), Some("text/plain")));
        for name in ["host", "content-length", "authorization", "upstash-topic-name"] {
            assert_eq!(told(name), None, "{name}");
        }
        assert_eq!(request.method(), Method::POST);
    }

    #[test]
    fn a_value_cannot_be_two_lines() {
        // Seen to fail: with `is_value` left out of `request`, what was forwarded brought a header of its own.
        let mut message = Message { head: Default::default(), body: Bytes::new() };
        message.head.url = "https://example.com/".into();
        let said = Said { id: "msg_1", retried: 0, signature: "signed", trace: None, trace_state: None };
        for value in ["1\r\nupstash-signature: forged", "1\n2", "\0", "\u{7f}"] {
            message.head.spec.headers = vec![("x-mine".into(), value.into())];
            assert!(request(&message, &said).is_err(), "{value:?}");
        }
        message.head.spec.headers = vec![("x-mine".into(), "caf\u{e9}\t1".into())];
        let written = request(&message, &said).and_then(Written::read).expect("text of any language");
        assert_eq!(written.headers()["x-mine"].as_bytes(), "caf\u{e9}\t1".as_bytes());
        message.head.spec.headers = vec![("x-mine: 1\r\nx-more".into(), "1".into())];
        assert!(request(&message, &said).is_err());
    }

    #[test]
    fn a_trace_of_ours_replaces_what_was_forwarded_of_another() {
        // Seen to fail: with `TRACE` left out of what is skipped, the endpoint got both.
        let mut message = Message { head: Default::default(), body: Bytes::new() };
        message.head.url = "https://example.com/".into();
        message.head.spec.headers =
            vec![("traceparent".into(), "theirs".into()), ("tracestate".into(), "a=1".into())];
        for (trace, parent, state) in [(None, "theirs", Some("a=1")), (Some("ours"), "ours", None)] {
            let said = Said { id: "msg_1", retried: 0, signature: "signed", trace, trace_state: None };
            let request = request(&message, &said).and_then(Written::read).expect("a request");
            let told = |name| request.headers().get_all(name).iter().collect::<Vec<_>>();
            assert_eq!(told("traceparent"), [parent]);
            assert_eq!(told("tracestate"), state.into_iter().collect::<Vec<_>>());
        }
    }
}
