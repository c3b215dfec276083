//! The way out: one pooled HTTP client for all deliveries.
//!
//! Owns connections, their reuse, and the bounds on what an endpoint may answer. It follows no redirect and decides nothing but
//! whom not to connect to.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use super::resolver::{self, Resolver};
use crate::office::Answered;

/// More of an answer is not read.
const MOST_OF_AN_ANSWER: usize = 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(60);
/// As many as a server has deliveries under way by default: one that is thrown away is made again by the next burst.
const IDLE_CONNECTIONS: usize = 1000;

/// Sends requests. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Egress {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    denies_private: bool,
}

/// What an endpoint said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// As much of it as is read.
    pub(crate) body: Bytes,
}

impl Answer {
    /// One that was kept, as it is told again.
    pub(crate) fn kept(kept: &Answered) -> Result<Self, NoAnswer> {
        let wrong = || NoAnswer::Broken("the answer that was kept cannot be read".to_owned());
        let mut headers = HeaderMap::new();
        for (name, value) in &kept.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<http::HeaderName>(), value.parse()) {
                headers.append(name, value);
            }
        }
        let status = StatusCode::from_u16(kept.status).map_err(|_| wrong())?;
        Ok(Answer { status, headers, body: kept.text().into() })
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("{0}")]
    Broken(String),
}

impl Egress {
    /// A client that connects to private addresses, or to none of them.
    pub(crate) fn new(denies_private: bool) -> Self {
        let mut http = HttpConnector::new_with_resolver(Resolver { denies_private });
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT));
        let https = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(https);
        Egress { client, denies_private }
    }

    /// Sends a request and reads its answer, all within `timeout`.
    ///
    /// Cancel safety: dropped, the request is cut off.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
    ) -> Result<Answer, NoAnswer> {
        let host = request.uri().host().unwrap_or_default();
        if let Some(Err(error)) = self.denies_private.then(|| resolver::check(host)) {
            return Err(NoAnswer::Broken(error.to_string()));
        }
        let asked = async {
            let response =
                self.client.request(request).await.map_err(|error| NoAnswer::Broken(causes(&error)))?;
            read(response).await
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or(Err(NoAnswer::Late(timeout)))
    }
}

async fn read(response: Response<Incoming>) -> Result<Answer, NoAnswer> {
    let (head, mut body) = response.into_parts();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| NoAnswer::Broken(causes(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = MOST_OF_AN_ANSWER - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if read.len() == MOST_OF_AN_ANSWER {
            break;
        }
    }
    Ok(Answer { status: head.status, headers: head.headers, body: read.freeze() })
}

/// An error with all that caused it, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
