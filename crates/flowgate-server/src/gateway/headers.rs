//! Headers between two hops.
//!
//! Owns which headers end here, and what the gateway says of the client it speaks for.

use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Those that belong to one connection, whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What a message is framed and addressed by: not for anybody to drop by naming it in `Connection`.
const NEEDED: [HeaderName; 2] = [header::CONTENT_LENGTH, header::HOST];

/// Takes out what belongs to one connection.
pub(super) fn strip(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = listed(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(|name| !NEEDED.contains(name))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Whether a header that is a list has this item.
pub(super) fn lists(headers: &HeaderMap, name: &HeaderName, item: &str) -> bool {
    listed(headers, name).any(|listed| listed.eq_ignore_ascii_case(item))
}

fn listed<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> + use<'h> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Who is spoken for: the same for all requests of a connection.
#[derive(Debug)]
pub(super) struct Speaker {
    address: HeaderValue,
    protocol: &'static str,
    /// For `Forwarded`, in which an IPv6 address is quoted.
    node: String,
}

impl Speaker {
    pub(super) fn new(peer: SocketAddr, is_tls: bool) -> Self {
        let address = peer.ip().to_canonical();
        let node = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("\"[{address}]\""),
        };
        let address = HeaderValue::try_from(address.to_string()).expect("an address is plain text");
        Speaker { address, protocol: if is_tls { "https" } else { "http" }, node }
    }

    /// Adds what the upstream should know of the client. What others have said before stays where they are trusted to say
    /// it; lists are always added to at their end, so whoever reads them from there meets us first.
    pub(super) fn introduce(&self, headers: &mut HeaderMap, host: Option<&HeaderValue>, is_trusted: bool) {
        let address = joined(headers, &X_FORWARDED_FOR, self.address.as_bytes());
        headers.insert(X_FORWARDED_FOR, address.unwrap_or_else(|| self.address.clone()));
        if !(is_trusted && headers.contains_key(X_FORWARDED_PROTO)) {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(self.protocol));
        }
        if let Some(host) = host
            && !(is_trusted && headers.contains_key(X_FORWARDED_HOST))
        {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        if headers.contains_key(header::FORWARDED) {
            let mut element = format!("for={};proto={}", self.node, self.protocol);
            if let Some(host) = host.and_then(|host| host.to_str().ok())
                && !host.contains(['"', '\\'])
            {
                write!(element, ";host=\"{host}\"").expect("a string takes all that is written");
            }
            if let Some(forwarded) = joined(headers, &header::FORWARDED, element.as_bytes()) {
                headers.insert(header::FORWARDED, forwarded);
            }
        }
    }
}

/// All lines of a list as one, with an item added; `None` if there is none.
fn joined(headers: &HeaderMap, name: &HeaderName, item: &[u8]) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter().peekable();
    lines.peek()?;
    let mut text = BytesMut::new();
    for line in lines.map(HeaderValue::as_bytes).chain([item]) {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(line);
    }
    HeaderValue::from_maybe_shared(text.freeze()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn speaker(peer: &str) -> Speaker {
        Speaker::new(SocketAddr::new(peer.parse().unwrap(), 9), false)
    }

    #[test]
    fn w3_what_belongs_to_one_connection_ends_here() {
        // Seen to fail: without the names that `Connection` lists, `x-mine` is sent on.
        let mut map = headers(&[
            ("connection", "close, X-Mine"),
            ("connection", "host, content-length, not a name"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-mine", "1"),
            ("host", "a"),
            ("content-length", "1"),
            ("trailer", "x-end"),
        ]);
        strip(&mut map);
        let mut left: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "trailer"]);
    }

    #[test]
    fn w3_forwarding_headers_are_added_to_and_not_believed() {
        // Seen to fail: with `append` instead of `joined`, whoever reads the first line reads the client's own.
        let host = HeaderValue::from_static("api.example.com:8081");
        let mut map = headers(&[
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "7.7.7.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil"),
            ("forwarded", "for=6.6.6.6"),
        ]);
        speaker("2001:db8::1").introduce(&mut map, Some(&host), false);
        assert_eq!(map["x-forwarded-for"], "6.6.6.6, 7.7.7.7, 2001:db8::1");
        assert_eq!(map["x-forwarded-proto"], "http");
        assert_eq!(map["x-forwarded-host"], "api.example.com:8081");
        assert_eq!(
            map["forwarded"],
            "for=6.6.6.6, for=\"[2001:db8::1]\";proto=http;host=\"api.example.com:8081\""
        );
        assert_eq!(map.get_all("x-forwarded-for").iter().count(), 1);
    }

    #[test]
    fn w3_a_trusted_proxy_says_of_whom_it_speaks() {
        // Seen to fail: with `is_trusted` not asked for, the scheme the client used is lost.
        let host = HeaderValue::from_static("inner");
        let mut map = headers(&[("x-forwarded-proto", "https"), ("x-forwarded-host", "api.example.com")]);
        speaker("::ffff:10.0.0.1").introduce(&mut map, Some(&host), true);
        assert_eq!(map["x-forwarded-for"], "10.0.0.1");
        assert_eq!(map["x-forwarded-proto"], "https");
        assert_eq!(map["x-forwarded-host"], "api.example.com");
        assert!(!map.contains_key("forwarded"), "what nobody uses is not begun");
    }
}
