//! Another service, over HTTP.

use std::fmt;

use bytes::Bytes;
use flowgate_core::{Code, OptionError};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, uri::Scheme};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use crate::route::{cx::Cx, destination::Destination, error::Error, exchange::Exchange, step::Outcome};

const MAX_REPLY: usize = 1024 * 1024;
/// The header by which a correlation is handed on.
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");

/// Sends the body to this address (`http://…`), by `POST` unless told otherwise, over connections that are kept and
/// used again. The answer is an [`HttpReply`]. A status of 400 or more is an error (RC5001), which is retryable for
/// 408, 429 and from 500 on; a server that cannot be reached is RC5010. To limit how long it may take, put a
/// `timeout` before it.
pub fn http(url: &str) -> Http {
    Http {
        uri: address(url),
        method: Method::POST,
        headers: HeaderMap::new(),
        max_reply: MAX_REPLY,
        takes_any_status: false,
        client: Client::builder(TokioExecutor::new()).build_http(),
    }
}

fn address(url: &str) -> Result<Uri, OptionError> {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    if after_scheme.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        // Not repeated, here or in any later error: there may be a password in it.
        let given = "an address with a user's name or password before its host";
        return Err(OptionError::new("url", given, "an address without them; set an `authorization` header"));
    }
    let uri = url.parse::<Uri>().ok();
    uri.filter(|uri| uri.scheme() == Some(&Scheme::HTTP) && uri.authority().is_some()).ok_or_else(|| {
        let accepted =
            "an address that begins with http://; for TLS, use a closure around a client of your own";
        OptionError::new("url", format_args!("{url:?}"), accepted)
    })
}

/// The destination that [`http`](fn@http) returns.
#[derive(Clone)]
pub struct Http {
    uri: Result<Uri, OptionError>,
    method: Method,
    headers: HeaderMap,
    max_reply: usize,
    takes_any_status: bool,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// What the other service answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpReply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl HttpReply {
    /// Returns the body as text, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http {
    /// Uses another method than `POST`.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Limits the bytes of an answer's body: default 1 MiB.
    #[must_use]
    pub fn max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = bytes;
        self
    }

    /// Accepts every status as an answer.
    #[must_use]
    pub fn any_status(mut self) -> Self {
        self.takes_any_status = true;
        self
    }

    async fn ask(&self, request: Request<Full<Bytes>>, host: &str) -> Result<HttpReply, Error> {
        let unreachable = |error| {
            Error::new(Code::Unreachable, format!("`{host}` could not be reached: {error}")).caused_by(error)
        };
        let response = self.client.request(request).await.map_err(unreachable)?;
        let (head, body) = response.into_parts();
        if !self.takes_any_status && head.status.as_u16() >= 400 {
            let status = head.status;
            let is_passing = status.is_server_error()
                || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
            let message = format!("`{host}` answered {status}");
            return Err(Error::new(Code::StepFailed, message).retryable(is_passing));
        }
        let body = Limited::new(body, self.max_reply).collect().await.map_err(|error| {
            Error::new(Code::StepFailed, format!("the answer of `{host}` could not be read: {error}"))
        })?;
        Ok(HttpReply { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

impl<B: Into<Bytes> + Send + 'static> Destination<B> for Http {
    type Reply = HttpReply;

    async fn send<'a>(&'a self, exchange: Exchange<B>, _: Cx<'a>) -> Outcome<HttpReply> {
        let uri = self.uri.clone().map_err(Error::from)?;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let (body, rest) = exchange.take();
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        if let Ok(correlation) = HeaderValue::from_str(&rest.correlation_id()) {
            request.headers_mut().insert(CORRELATION, correlation);
        }
        Ok(rest.with(self.ask(request, &host).await?))
    }

    fn check(&self) -> Result<(), Error> {
        self.uri.as_ref().map(drop).map_err(|error| error.clone().into())
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("uri", &self.uri).field("method", &self.method).finish_non_exhaustive()
    }
}
