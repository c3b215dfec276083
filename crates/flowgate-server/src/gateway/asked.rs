//! What a request asks for, and what no request may ask.
//!
//! Owns the checks that come before any route: without a host that is plain and the same everywhere, nobody could say which
//! route is meant.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header, request::Parts, uri::PathAndQuery,
};

use super::{fault::Fault, path::normal};
use crate::wire::lists;

/// The head of a request, wherever it stands: as hyper took it apart, or as it was read.
pub(super) trait Head {
    fn method(&self) -> &Method;
    fn version(&self) -> Version;
    /// The host that the target names, with all that may stand beside it.
    fn authority(&self) -> Option<&str>;
    /// Whether the target has a form that this method may have (RFC 9112, 3.2): a path, a whole URL of HTTP, or `*` for OPTIONS.
    fn has_known_form(&self) -> bool;
    fn path(&self) -> &str;
    /// The values of a header, in the order of its lines.
    fn values<'h>(&'h self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &'h [u8]>;
    /// The names of its headers, in any case.
    fn names(&self) -> impl Iterator<Item = &[u8]>;
}

impl Head for Parts {
    fn method(&self) -> &Method {
        &self.method
    }

    fn version(&self) -> Version {
        self.version
    }

    fn authority(&self) -> Option<&str> {
        self.uri.authority().map(http::uri::Authority::as_str)
    }

    fn has_known_form(&self) -> bool {
        let of_http = || self.uri.scheme().is_some_and(|scheme| matches!(scheme.as_str(), "http" | "https"));
        (self.uri.path() != "*" || self.method == Method::OPTIONS)
            && (self.uri.authority().is_none() || of_http())
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn values<'h>(&'h self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &'h [u8]> {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes)
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.headers.keys().map(|name| name.as_str().as_bytes())
    }
}

/// A request as routes and upstreams see it.
#[derive(Debug)]
pub(super) struct Asked<'r> {
    /// In lower case, without a port. As bytes: what may be in it is ASCII, and there is nothing more to find out about it.
    pub(super) host: Cow<'r, [u8]>,
    /// In its normal form.
    pub(super) path: Cow<'r, str>,
}

impl<'r> Asked<'r> {
    pub(super) fn of(head: &'r impl Head) -> Result<Self, Fault> {
        if *head.method() == Method::CONNECT {
            return Err(Fault::Tunnel);
        }
        if !head.has_known_form() {
            return Err(Fault::Request("The request target is neither a path nor an HTTP URL."));
        }
        // A header that nobody could read is not accepted, also where the target says the same.
        let named = host_of(head)?;
        let host = match head.authority() {
            // Whoever names a host in the target means that one (RFC 9112, 3.2.2).
            Some(authority) => without_port(authority.as_bytes())
                .ok_or(Fault::Request("The request target has no valid host."))?,
            None => named,
        };
        // A name with the dot of the root behind it is the same name.
        let host = host.strip_suffix(b".").unwrap_or(host);
        let is_upper = host.iter().any(u8::is_ascii_uppercase);
        let host = if is_upper { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) };
        let path = normal(head.path()).ok_or(Fault::Request(DOUBTFUL_DOTS))?;
        Ok(Asked { host, path })
    }
}

const DOUBTFUL_DOTS: &str = "The path has `.` or `..` as a segment, and `//`, `\\`, `;` or an encoded slash, so that it leads to \
                             different places for different servers.";

/// What the header says, without the port.
fn host_of(head: &impl Head) -> Result<&[u8], Fault> {
    let mut hosts = head.values(&header::HOST);
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            without_port(host).ok_or(Fault::Request("The header Host is not a valid host."))
        }
        (Some(_), Some(_)) => Err(Fault::Request("The header Host appears more than once.")),
        (None, _) if head.version() < Version::HTTP_11 => Ok(b""),
        // There the target says it.
        (None, _) if head.version() > Version::HTTP_11 && head.authority().is_some() => Ok(b""),
        (None, _) => Err(Fault::Request("The header Host is missing.")),
    }
}

/// What a name may have in it, and what an address in brackets (RFC 3986, 3.2.2).
const OF_A_NAME: [bool; 256] = chars(b"-._~%!$&'()*+,;=");
const OF_AN_ADDRESS: [bool; 256] = chars(b"-._~!$&'()*+,;=:");

/// Letters, digits and these, to look up by the byte.
pub(super) const fn chars(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte: u8 = 0;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// A host as it is, without its port; `None` if it is none, or a user stands before it.
fn without_port(authority: &[u8]) -> Option<&[u8]> {
    let digits = authority.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let host = authority[..authority.len() - digits].strip_suffix(b":").unwrap_or(authority);
    let (text, table) = match host.strip_prefix(b"[") {
        Some(address) => (address.strip_suffix(b"]")?, &OF_AN_ADDRESS),
        None => (host, &OF_A_NAME),
    };
    text.iter().all(|byte| table[usize::from(*byte)]).then_some(host)
}

/// A body comes in chunks, if its length is not told: another coding would be lost with the header that names it, and belongs
/// to this connection alone (RFC 9112, 6.1).
pub(super) fn check_coding(request: &Parts) -> Result<(), Fault> {
    let mut codings = request.headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(_), _) => Err(Fault::Coding),
    }
}

/// The only protocol that a connection can become. In any other, `h2c` above all, requests could follow that no limit would see.
pub(super) const WEB_SOCKET: &str = "websocket";

/// Whether the request asks to make its connection a WebSocket. Whatever else it may ask for is passed over, as any server may
/// (RFC 9110, 7.8).
pub(super) fn asks_for_web_socket(request: &Parts) -> bool {
    request.version == Version::HTTP_11
        && lists(&request.headers, &header::CONNECTION, "upgrade")
        && lists(&request.headers, &header::UPGRADE, WEB_SOCKET)
}

/// Makes the request one for HTTP/1.1: the host in its header, and the rest in the target.
pub(super) fn to_http1(request: &mut Parts) {
    if let Some(authority) = request.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers.insert(header::HOST, host);
    }
    request.uri = Uri::from(target_of(&request.uri));
    if request.version == Version::HTTP_2 {
        crumbs_as_one(&mut request.headers);
    }
    request.version = Version::HTTP_11;
}

/// The path of a target and its query: one that is empty is written as `/` (RFC 9112, 3.2.1).
fn target_of(uri: &Uri) -> PathAndQuery {
    let whole = match uri.path_and_query() {
        Some(target) if target.as_str().starts_with('?') => format!("/{}", target.as_str()).parse().ok(),
        target => target.cloned(),
    };
    whole.unwrap_or(PathAndQuery::from_static("/"))
}

/// HTTP/2 may bring a cookie in several lines, which HTTP/1.1 may not (RFC 9113, 8.2.3).
fn crumbs_as_one(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(cookie) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(header::COOKIE, cookie);
    }
}

/// Makes the request one for HTTP/2: the host in its target.
pub(super) fn to_http2(request: &mut Parts, upstream: &http::uri::Authority) {
    let named = request.headers.remove(header::HOST);
    let mut target = std::mem::take(&mut request.uri).into_parts();
    let authority = target.authority.take();
    let authority = authority.or_else(|| named.as_ref()?.to_str().ok()?.parse().ok());
    target.authority = Some(authority.unwrap_or_else(|| upstream.clone()));
    target.scheme = Some(http::uri::Scheme::HTTP);
    target.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    request.uri = Uri::from_parts(target).unwrap_or_default();
    request.version = Version::HTTP_2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(target: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(Request::builder().uri(target), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn w1_the_host_is_told_in_one_place_and_plainly() {
        // Seen to fail: with the first of two `Host` lines taken; with the header not looked at where the target names a host;
        // with the dot of the root kept.
        for (target, headers, host) in [
            ("/a", &[("host", "API.Example.com:8081")][..], Ok("api.example.com")),
            ("/a", &[("host", "[::1]:80")], Ok("[::1]")),
            ("/a", &[("host", "[::1]")], Ok("[::1]")),
            ("http://b/a", &[("host", "c")], Ok("b")),
            ("/a", &[("host", "b.example.:80")], Ok("b.example")),
            ("http://b./a", &[("host", "c")], Ok("b")),
            ("/a", &[("host", "")], Ok("")),
            ("/a", &[("host", "b:")], Ok("b")),
            ("/a", &[], Err(400)),
            ("http://b:80/a", &[], Err(400)),
            ("/a", &[("host", "b"), ("host", "b")], Err(400)),
            ("http://b/a", &[("host", "b"), ("host", "b")], Err(400)),
            ("http://b/a", &[("host", "b c")], Err(400)),
            ("http://u@b/a", &[("host", "b")], Err(400)),
            ("ftp://b/a", &[("host", "b")], Err(400)),
            ("b", &[("host", "b")], Err(400)),
            ("*", &[("host", "b")], Err(400)),
            ("/a", &[("host", "b/c")], Err(400)),
            ("/a", &[("host", "b c")], Err(400)),
            ("/a", &[("host", "u@b")], Err(400)),
            ("/a", &[("host", "b:c")], Err(400)),
            ("/a", &[("host", "b:80:90")], Err(400)),
            ("/a", &[("host", "[::1")], Err(400)),
            ("/a", &[("host", "::1")], Err(400)),
            ("/a", &[("host", "[::1]b")], Err(400)),
            ("/a", &[("host", "[[::1]]")], Err(400)),
        ] {
            let parts = parts(target, headers);
            let seen = Asked::of(&parts).map(|asked| asked.host.into_owned()).map_err(|_| 400);
            assert_eq!(seen.as_deref(), host.map(str::as_bytes).as_ref().copied(), "{target} {headers:?}");
        }
        let mut two = parts("http://b:80/a", &[]);
        two.version = Version::HTTP_2;
        assert_eq!(Asked::of(&two).map(|asked| asked.host.into_owned()).ok().as_deref(), Some(&b"b"[..]));
        let mut old = parts("/a", &[]);
        old.version = Version::HTTP_10;
        assert!(Asked::of(&old).is_ok_and(|asked| asked.host.is_empty()));
    }

    /// A request of HTTP/2 with this `:path`, and perhaps an `:authority`.
    fn of_two(authority: Option<&str>, path: &str) -> Parts {
        let mut uri = http::uri::Parts::default();
        uri.path_and_query = Some(path.parse().unwrap());
        uri.scheme = authority.map(|_| http::uri::Scheme::HTTP);
        uri.authority = authority.map(|authority| authority.parse().unwrap());
        let mut parts = parts("/", &[("host", "b")]);
        (parts.uri, parts.version) = (Uri::from_parts(uri).unwrap(), Version::HTTP_2);
        parts
    }

    #[test]
    fn w3_a_target_of_http2_has_a_form_that_http1_knows() {
        // Seen to fail: with `*` looked for only where the target names no host, GET of it passed; with a whole URL
        // alone mended, `?x` went out as it was.
        for authority in [None, Some("b")] {
            let mut star = of_two(authority, "*");
            assert!(Asked::of(&star).is_err(), "{authority:?}");
            star.method = Method::OPTIONS;
            assert!(Asked::of(&star).is_ok(), "{authority:?}");
            to_http1(&mut star);
            assert_eq!(star.uri, "*");
            let mut bare = of_two(authority, "?x");
            to_http1(&mut bare);
            assert_eq!(bare.uri.path_and_query().map(PathAndQuery::as_str), Some("/?x"), "{authority:?}");
        }
    }

    #[test]
    fn w3_a_request_is_rewritten_for_the_protocol_of_the_upstream() {
        // Seen to fail: with the header kept, an h2 upstream gets two hosts.
        let mut one = parts("http://b:80/a?q", &[("host", "c"), ("cookie", "a=1"), ("cookie", "b=2")]);
        one.version = Version::HTTP_2;
        to_http1(&mut one);
        assert_eq!((one.uri.to_string().as_str(), &one.headers["host"]), ("/a?q", &"b:80".parse().unwrap()));
        assert_eq!(one.headers["cookie"], "a=1; b=2");

        let mut two = parts("/a?q", &[("host", "c:1")]);
        to_http2(&mut two, &"up:9".parse().unwrap());
        assert_eq!(two.uri, "http://c:1/a?q");
        assert!(!two.headers.contains_key("host"));
    }
}
