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
    fn path(&self) -> &str;
    /// The values of a header, in the order of its lines.
    fn values<'h>(&'h self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &'h [u8]>;
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

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn values<'h>(&'h self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &'h [u8]> {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes)
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
        let authority = match head.authority() {
            // Whoever names a host in the target means that one (RFC 9112, 3.2.2).
            Some(authority) => {
                authority.rsplit_once('@').map_or(authority, |(_, authority)| authority).as_bytes()
            }
            None => host_of(head)?,
        };
        let host = without_port(authority);
        let is_upper = host.iter().any(u8::is_ascii_uppercase);
        let host = if is_upper { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) };
        Ok(Asked { host, path: normal(head.path()) })
    }
}

fn host_of(head: &impl Head) -> Result<&[u8], Fault> {
    let mut hosts = head.values(&header::HOST);
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if host.iter().all(|byte| OF_A_HOST[usize::from(*byte)]) => Ok(host),
        (Some(_), None) => Err(Fault::Request("The header Host is not a host.")),
        (Some(_), Some(_)) => Err(Fault::Request("The header Host is there more than once.")),
        (None, _) if head.version() < Version::HTTP_11 => Ok(b""),
        (None, _) => Err(Fault::Request("The header Host is missing.")),
    }
}

/// What a host may have in it (RFC 3986, 3.2.2).
const OF_A_HOST: [bool; 256] = chars(b"-._~[]:%!$&'()*+,;=");

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

fn without_port(authority: &[u8]) -> &[u8] {
    let digits = authority.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    authority[..authority.len() - digits].strip_suffix(b":").unwrap_or(authority)
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
    if let Some(authority) = request.uri.authority() {
        let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host);
        if let Ok(host) = HeaderValue::from_str(host) {
            request.headers.insert(header::HOST, host);
        }
        let target = request.uri.path_and_query().cloned();
        request.uri = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    if request.version == Version::HTTP_2 {
        crumbs_as_one(&mut request.headers);
    }
    request.version = Version::HTTP_11;
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
        // Seen to fail: with the first of two `Host` lines taken.
        for (target, headers, host) in [
            ("/a", &[("host", "API.Example.com:8081")][..], Ok("api.example.com")),
            ("/a", &[("host", "[::1]:80")], Ok("[::1]")),
            ("/a", &[("host", "[::1]")], Ok("[::1]")),
            ("http://b/a", &[("host", "c")], Ok("b")),
            ("http://b:80/a", &[], Ok("b")),
            ("/a", &[], Err(400)),
            ("/a", &[("host", "b"), ("host", "b")], Err(400)),
            ("/a", &[("host", "b/c")], Err(400)),
            ("/a", &[("host", "b c")], Err(400)),
        ] {
            let parts = parts(target, headers);
            let seen = Asked::of(&parts).map(|asked| asked.host.into_owned()).map_err(|_| 400);
            assert_eq!(seen.as_deref(), host.map(str::as_bytes).as_ref().copied(), "{target} {headers:?}");
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
