//! A message as the request that its endpoint gets.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};

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
    for (name, value) in &head.spec.headers {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    let retried = said.retried.to_string();
    let own = [
        ("user-agent", Some("Upstash-QStash")),
        ("upstash-message-id", Some(said.id)),
        ("upstash-retried", Some(retried.as_str())),
        ("upstash-signature", Some(said.signature)),
        ("upstash-caller-ip", head.caller.as_deref()),
        ("upstash-topic-name", head.topic.as_deref()),
        ("upstash-schedule-id", head.schedule.as_deref()),
    ];
    for (name, value) in own {
        headers.remove(name);
        if let Some(value) = value {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
        }
    }
    // One that was forwarded stays where there is none of ours.
    if let Some(trace) = said.trace {
        headers.insert("traceparent", HeaderValue::from_str(trace)?);
        // The one of another trace would be wrong beside it.
        headers.remove("tracestate");
        if let Some(state) = said.trace_state {
            headers.insert("tracestate", HeaderValue::from_str(state)?);
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
