//! A message as the request that its endpoint gets.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};

use crate::message::Message;

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

/// The request, or why it cannot be made.
pub(super) fn request(message: &Message, said: &Said<'_>) -> Result<Request<Bytes>, http::Error> {
    let head = &message.head;
    let method: Method = head.spec.method().parse()?;
    let mut request = Request::builder().method(method).uri(&head.url).body(body(message))?;
    let headers = request.headers_mut();
    headers.reserve(head.spec.headers.len() + OWN.len() + TRACE.len());
    for (name, value) in &head.spec.headers {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        if !OWN.contains(&name) {
            headers.append(name, HeaderValue::from_str(value)?);
        }
    }
    let own = [
        Some(HeaderValue::from_static("Upstash-QStash")),
        Some(HeaderValue::from_str(said.id)?),
        Some(HeaderValue::from(said.retried)),
        Some(HeaderValue::from_str(said.signature)?),
        head.caller.as_deref().map(HeaderValue::from_str).transpose()?,
        head.topic.as_deref().map(HeaderValue::from_str).transpose()?,
        head.schedule.as_deref().map(HeaderValue::from_str).transpose()?,
    ];
    headers.extend(OWN.into_iter().zip(own).filter_map(|(name, value)| Some((name, value?))));
    // One that was forwarded stays where there is none of ours.
    if let Some(trace) = said.trace {
        let [parent, state] = TRACE;
        headers.insert(parent, HeaderValue::from_str(trace)?);
        // The one of another trace would be wrong beside it.
        headers.remove(&state);
        if let Some(told) = said.trace_state {
            headers.insert(state, HeaderValue::from_str(told)?);
        }
    }
    Ok(request)
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
        let request = request(&message, &said).expect("a request");
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
}
