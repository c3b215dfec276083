//! A request as its upstream gets it.
//!
//! Owns what is left out, what is added, and how it is written.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header, request::Parts, uri::Authority,
};
use hyper::body::Body;

use super::{
    asked::{WEB_SOCKET, asks_for_web_socket, to_http1, to_http2},
    headers::{Introduction, Marks, strip},
    inbound::Inbound,
    upload::Upload,
    upstream::Pool,
};
use crate::wire::{lists, put_line};

/// What goes out beside the request's own headers.
#[derive(Debug)]
pub(super) struct Outgoing {
    introduction: Introduction,
    is_chunked: bool,
    has_no_length: bool,
    takes_trailers: bool,
    is_web_socket: bool,
    /// Whether the client waits for word that its body is wanted.
    pub(super) expects: bool,
}

impl Outgoing {
    /// Makes the request one for HTTP/1.1 without what belongs to the client's connection; what is to be added is told by
    /// `introduce`, which sees the headers then.
    pub(super) fn prepare(
        parts: &mut Parts,
        body: &Inbound,
        introduce: impl FnOnce(&HeaderMap, Marks) -> Introduction,
    ) -> Self {
        let marks = Marks::of(&parts.headers);
        let has_body = !body.is_end_stream();
        let is_web_socket = marks.upgrade && !has_body && asks_for_web_socket(parts);
        let takes_trailers = marks.te && lists(&parts.headers, &header::TE, "trailers");
        let expects = marks.expect && has_body && lists(&parts.headers, &header::EXPECT, "100-continue");
        if parts.version == Version::HTTP_2 {
            tell_length(&mut parts.headers, body);
        }
        to_http1(parts);
        strip(&mut parts.headers, marks);
        Outgoing {
            introduction: introduce(&parts.headers, marks),
            is_chunked: has_body && body.size_hint().exact().is_none(),
            has_no_length: !has_body
                && has_meaning(&parts.method)
                && !parts.headers.contains_key(header::CONTENT_LENGTH),
            takes_trailers,
            is_web_socket,
            expects,
        }
    }

    /// Whether the upstream may switch to this protocol: the one that it was asked for.
    pub(super) fn allows(&self, protocol: Option<&HeaderValue>) -> bool {
        let is_one = |name: &HeaderValue| name.as_bytes().eq_ignore_ascii_case(WEB_SOCKET.as_bytes());
        self.is_web_socket && protocol.is_some_and(is_one)
    }

    /// Writes the head for HTTP/1.1.
    pub(super) fn write(&self, parts: &Parts, upstream: &Authority, text: &mut Vec<u8>) {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        text.extend_from_slice(parts.method.as_str().as_bytes());
        text.push(b' ');
        text.extend_from_slice(target.as_bytes());
        text.extend_from_slice(b" HTTP/1.1\r\n");
        self.introduction.write(&parts.headers, text);
        // One of HTTP/1.0 may name no host, and one of HTTP/1.1 has to (RFC 9112, 3.2).
        if self.introduction.lacks_host {
            put_line(text, header::HOST.as_str(), upstream.as_str().as_bytes());
        }
        let mut put = |name: HeaderName, value: &[u8]| put_line(text, name.as_str(), value);
        if self.is_chunked {
            put(header::TRANSFER_ENCODING, b"chunked");
        }
        if self.has_no_length {
            put(header::CONTENT_LENGTH, b"0");
        }
        if self.takes_trailers {
            put(header::TE, b"trailers");
        }
        match (self.is_web_socket, self.takes_trailers) {
            (true, _) => {
                put(header::CONNECTION, if self.takes_trailers { b"upgrade, te" } else { b"upgrade" });
                put(header::UPGRADE, WEB_SOCKET.as_bytes());
            }
            (false, true) => put(header::CONNECTION, b"te"),
            (false, false) => {}
        }
        text.extend_from_slice(b"\r\n");
    }

    /// The head of the same request in the form of HTTP/2.
    pub(super) fn for_http2(&self, request: &Request<Upload>, pool: &Pool) -> Request<()> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.headers.clone_from(request.headers());
        head.headers.remove(header::EXPECT);
        self.introduction.insert(&mut head.headers);
        if self.has_no_length {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        if self.takes_trailers {
            head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        to_http2(&mut head, pool.upstream.authority());
        Request::from_parts(head, ())
    }
}

/// Of HTTP/2 a request may tell the length of its body several times, or as nothing: it is checked there, and not needed. Here
/// a body is framed by it.
fn tell_length(headers: &mut HeaderMap, body: &Inbound) {
    if headers.contains_key(header::CONTENT_LENGTH) {
        match body.size_hint().exact() {
            Some(length) => headers.insert(header::CONTENT_LENGTH, length.into()),
            None => headers.remove(header::CONTENT_LENGTH),
        };
    }
}

/// Whether a body means something with this method: then one who sends none says so (RFC 9110, 8.6).
fn has_meaning(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}
