//! Upstreams: where requests are sent on to.
//!
//! Owns the text form, `http://host:port`. It resolves no name and connects to nothing.

use std::{fmt, str::FromStr};

use http::{
    Uri,
    uri::{Authority, Scheme},
};

const HTTP_PORT: u16 = 80;

/// One upstream: plain HTTP to a host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Upstream {
    authority: Authority,
    is_http2: bool,
}

/// What is wrong with the text of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UpstreamError(&'static str);

impl Upstream {
    /// Host and port as they were written; what `Host` says where it is not the client's own.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether it is spoken to in HTTP/2 from the first byte on (`h2c://`).
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// A name or an address; IPv6 without its brackets.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, 80 unless it was written.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(HTTP_PORT)
    }
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        const FORM: UpstreamError = UpstreamError("a URL like http://127.0.0.1:9000");
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let scheme = uri.scheme().ok_or(FORM)?;
        let is_http2 = scheme.as_str() == "h2c";
        if *scheme != Scheme::HTTP && !is_http2 {
            return Err(UpstreamError(
                "an http:// or h2c:// URL, because upstreams are called over plain HTTP",
            ));
        }
        if uri.path() != "/" || uri.query().is_some() || text.contains('#') {
            return Err(UpstreamError(
                "a URL without a path, because the path of the request is sent on unchanged",
            ));
        }
        let authority = uri.authority().ok_or(FORM)?.clone();
        if authority.as_str().contains('@') {
            return Err(UpstreamError("a URL without a user or a password"));
        }
        let has_port = authority.as_str().len() > authority.host().len();
        let is_no_port = matches!(authority.port_u16(), None | Some(0));
        if authority.host().is_empty() || (has_port && is_no_port) {
            return Err(FORM);
        }
        Ok(Upstream { authority, is_http2 })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_http2 { "h2c" } else { "http" }, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_host_and_a_port() {
        // Seen to fail: with the brackets of an IPv6 address kept in the host.
        for (text, host, port) in [
            ("http://a", "a", 80),
            ("http://a/", "a", 80),
            ("http://10.0.0.1:9000", "10.0.0.1", 9000),
            ("http://[::1]:65535", "::1", 65535),
            ("http://[::1]", "::1", 80),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!((upstream.host(), upstream.port()), (host, port), "{text}");
            assert_eq!(upstream.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn nothing_else_is_one() {
        // Seen to fail: with a port that is no number taken for none.
        for text in [
            "",
            "a",
            "a:80",
            "/a",
            "http:",
            "http://",
            "http://:80",
            "https://a",
            "ftp://a",
            "http://a/b",
            "http://a?b",
            "http://a#b",
            "http://a/#b",
            "http://u@a",
            "http://u:p@a",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://a b",
            "http://a:b",
        ] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }
}
