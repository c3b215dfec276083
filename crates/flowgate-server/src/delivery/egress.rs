//! The way out: one client for all deliveries. Plain endpoints are asked by hand ([`super::plain`]), those
//! behind TLS by hyper.
//!
//! Owns the time an answer may take, the bounds on its size, and connections behind TLS. It follows no
//! redirect, and decides only to which addresses it does not connect.

use std::{
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::future::{Either, ready};
use http::{HeaderMap, Request, Response, StatusCode, header::PROXY_AUTHORIZATION, uri::Scheme};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::{
    plain::Plain,
    request::Written,
    resolver,
    road::Road,
    trust::{self, TrustError},
};
use crate::{config::Proxy, office::Answered, wire::Whole};

/// More of an answer is not read, unless somebody says otherwise.
pub(super) const MOST_OF_AN_ANSWER: usize = 1024 * 1024;
const IDLE: Duration = Duration::from_secs(60);
/// For each host behind TLS.
const IDLE_CONNECTIONS: usize = 256;

/// Sends requests. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Egress {
    plain: Plain,
    client: Client<HttpsConnector<Road>, Full<Bytes>>,
    denies_private: bool,
    proxy: Option<Proxy>,
    /// More of an answer is not read.
    most: usize,
}

/// How requests leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outward {
    /// Nothing goes to private addresses.
    pub(crate) denies_private: bool,
    /// All goes by this one.
    pub(crate) proxy: Option<Proxy>,
    /// Certificates to believe beside the public ones.
    pub(crate) trusted: Option<PathBuf>,
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
    /// It answered, and is not what was asked for.
    #[error("{0}")]
    Unfit(&'static str),
}

impl NoAnswer {
    pub(super) fn broken(error: &dyn std::error::Error) -> Self {
        NoAnswer::Broken(causes(error))
    }
}

impl Egress {
    /// A client that goes this way.
    pub(crate) fn new(outward: &Outward) -> Result<Self, TrustError> {
        let Outward { denies_private, proxy, trusted } = outward.clone();
        let road = Road::new(denies_private, proxy.clone());
        let plain = Plain::new(road.clone(), proxy.clone());
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(trust::client(trusted.as_deref())?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(road);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(https);
        Ok(Egress { plain, client, denies_private, proxy, most: MOST_OF_AN_ANSWER })
    }

    /// One that goes straight to whoever is asked.
    pub(crate) fn straight() -> Self {
        Egress::new(&Outward::default()).expect("there is no file that something could be wrong with")
    }

    /// The same, for answers of up to so many bytes.
    pub(crate) fn reading(self, most: usize) -> Self {
        Egress { plain: self.plain.reading(most), most, ..self }
    }

    /// Sends a request and reads its answer, all within `timeout`.
    ///
    /// Cancel safety: dropped, the request is cut off.
    pub(crate) fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, NoAnswer>> + Send {
        self.send_with(request, Vec::new(), timeout)
    }

    /// The same for a request that is written already. Who goes by hyper, or by a proxy, looks at its headers.
    pub(super) fn send_written(
        &self,
        written: Written,
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, NoAnswer>> + Send {
        let is_plain = written.request.uri().scheme() == Some(&Scheme::HTTP) && self.proxy.is_none();
        let parts =
            if is_plain { Ok(written.into_parts()) } else { written.read().map(|read| (read, Vec::new())) };
        match parts {
            Ok((request, lines)) => Either::Left(self.send_with(request, lines, timeout)),
            Err(error) => Either::Right(ready(Err(NoAnswer::Broken(error.to_string())))),
        }
    }

    fn send_with(
        &self,
        mut request: Request<Bytes>,
        lines: Vec<u8>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, NoAnswer>> + Send {
        let host = request.uri().host().unwrap_or_default();
        let denied = self.denies_private.then(|| resolver::check(host).err()).flatten();
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        // An endpoint behind https is asked through a tunnel, and never sees what is for the proxy.
        if let Some(proxy) = self.proxy.as_ref().filter(|_| is_plain) {
            request.headers_mut().remove(PROXY_AUTHORIZATION);
            if let Some(credentials) = proxy.credentials() {
                request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
            }
        }
        let mut request = Some(request.map(Whole));
        // A future has room for each value of each function it is made of, and there are as many as deliveries: so the
        // request has one place, and what hyper needs is elsewhere.
        let asked = async move {
            match denied {
                Some(error) => Err(NoAnswer::Broken(error.to_string())),
                None if is_plain => self.plain.ask(&mut request, &lines).await,
                None => Box::pin(self.ask_by_hyper(request.take().unwrap_or_default())).await,
            }
        };
        InTime { asked, timeout, late: None }
    }

    async fn ask_by_hyper(&self, request: Request<Whole>) -> Result<Answer, NoAnswer> {
        let asked = self.client.request(request.map(|Whole(body)| Full::new(body)));
        read(asked.await.map_err(|error| NoAnswer::broken(&error))?, self.most).await
    }
}

pin_project! {
    /// Asks, within a time that begins when somebody waits for it. What asks is large: it is polled where it is, and
    /// never moved into a timeout.
    struct InTime<F> {
        #[pin]
        asked: F,
        timeout: Duration,
        #[pin]
        late: Option<Sleep>,
    }
}

impl<F: Future<Output = Result<Answer, NoAnswer>>> Future for InTime<F> {
    type Output = Result<Answer, NoAnswer>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(answer) = this.asked.poll(cx) {
            return Poll::Ready(answer);
        }
        if this.late.is_none() {
            this.late.set(Some(sleep(*this.timeout)));
        }
        let late = this.late.as_pin_mut().map_or(Poll::Pending, |late| late.poll(cx));
        late.map(|()| Err(NoAnswer::Late(*this.timeout)))
    }
}

async fn read(response: Response<Incoming>, most: usize) -> Result<Answer, NoAnswer> {
    let (head, mut body) = response.into_parts();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| NoAnswer::broken(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = most - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if read.len() == most {
            break;
        }
    }
    Ok(Answer { status: head.status, headers: head.headers, body: read.freeze() })
}

/// An error with all that caused it, in one line.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
