//! What a client is told when there is no answer of an upstream.
//!
//! Owns the status and the words of everything that goes wrong here but refusals, which are the limits' own.

use bytes::Bytes;
use flowgate::http::Answer;
use http::{Response, StatusCode};

/// Why there is no answer of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request says something that is not accepted.
    Request(&'static str),
    /// No route matches, and nothing passes by itself.
    NoRoute,
    /// Asked to be a tunnel to elsewhere.
    Tunnel,
    /// The body comes in a coding that is not understood here.
    Coding,
    /// The client stopped sending its body.
    Stalled,
    /// The body is larger than the route allows.
    TooLarge,
    /// No upstream takes a connection.
    Unreachable,
    /// The upstream hung up, or what it said is no HTTP.
    Broken,
    /// The upstream did not take a connection in time.
    ConnectLate,
    /// The upstream did not answer in time.
    Late,
}

impl Fault {
    fn words(self) -> (StatusCode, &'static str, &'static str, &'static str) {
        match self {
            Fault::Request(why) => (StatusCode::BAD_REQUEST, "PLATFORM.BAD_REQUEST", "Bad request.", why),
            Fault::NoRoute => (
                StatusCode::NOT_FOUND,
                "PLATFORM.NOT_FOUND",
                "Not found.",
                "No route of this gateway matches the request.",
            ),
            Fault::Tunnel => (
                StatusCode::METHOD_NOT_ALLOWED,
                "PLATFORM.METHOD_NOT_ALLOWED",
                "Method not allowed.",
                "This gateway does not open tunnels (CONNECT).",
            ),
            Fault::Coding => (
                StatusCode::NOT_IMPLEMENTED,
                "PLATFORM.NOT_IMPLEMENTED",
                "Not implemented.",
                "The header Transfer-Encoding must be `chunked`, given once.",
            ),
            Fault::Stalled => (
                StatusCode::REQUEST_TIMEOUT,
                "PLATFORM.REQUEST_TIMEOUT",
                "Request timeout.",
                "The body of the request stopped arriving.",
            ),
            Fault::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "PLATFORM.BODY_TOO_LARGE",
                "Body too large.",
                "The body of the request is larger than this route accepts.",
            ),
            Fault::Unreachable => (
                StatusCode::BAD_GATEWAY,
                "PLATFORM.UPSTREAM_UNREACHABLE",
                "Upstream unreachable.",
                "The upstream does not accept connections.",
            ),
            Fault::Broken => (
                StatusCode::BAD_GATEWAY,
                "PLATFORM.UPSTREAM_FAILED",
                "Upstream failed.",
                "The upstream ended the connection without a valid answer.",
            ),
            Fault::ConnectLate => (
                StatusCode::GATEWAY_TIMEOUT,
                "PLATFORM.UPSTREAM_TIMEOUT",
                "Upstream timeout.",
                "The upstream did not accept a connection in time.",
            ),
            Fault::Late => (
                StatusCode::GATEWAY_TIMEOUT,
                "PLATFORM.UPSTREAM_TIMEOUT",
                "Upstream timeout.",
                "The upstream did not answer in time.",
            ),
        }
    }

    /// The answer to the client, in the form of the route's refusals.
    pub(super) fn told(self, form: &Answer) -> Response<Bytes> {
        let (status, code, title, message) = self.words();
        form.fail(status, code, title, message)
    }
}
