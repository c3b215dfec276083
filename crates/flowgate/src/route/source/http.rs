//! HTTP requests that come in.

use std::{
    iter,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use bytes::Bytes;
use flowgate_core::{Code, OptionError};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::{
    route::{
        context::Shared,
        error::Error,
        exchange::Exchange,
        intake::Intake,
        mounted::Mounted,
        source::{Feed, Source},
        step::Halt,
    },
    sync::lock,
};

/// The header by which a correlation is handed on.
const CORRELATION: &str = "x-correlation-id";
const MAX_BODY: usize = 1024 * 1024;

/// A source of HTTP requests with this method and path, which is written as axum writes it (`/orders/{id}`). The
/// exchange runs inside of the request: a client that hangs up cancels it. The body that the route leaves is the
/// response; a dropped exchange is answered with 204, a failed one with a problem document.
/// [`Context::router`](super::super::Context::router) serves them all.
pub fn http_in(method: Method, path: &str) -> HttpSource {
    HttpSource { method, path: path.to_owned(), max_body: MAX_BODY }
}

/// The source that [`http_in`] returns.
#[derive(Clone, Debug)]
pub struct HttpSource {
    method: Method,
    path: String,
    max_body: usize,
}

impl HttpSource {
    /// Limits the bytes of a request's body: default 1 MiB. A longer one is answered with 413.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }
}

impl<O: IntoResponse + Send + 'static> Source<O> for HttpSource {
    type Body = http::Request<Bytes>;

    fn open(&self, intake: Intake<http::Request<Bytes>, O>) -> Result<Feed, Error> {
        let filter = MethodFilter::try_from(self.method.clone())
            .map_err(|_| OptionError::new("method", &self.method, "a method that axum can route"))?;
        let (mounted, max_body) = (Arc::clone(&intake.mounted), self.max_body);
        // Who serves the router holds what the routes need of their context, and the context does not hold itself.
        let handler = move |State(context): State<Arc<Shared>>, request: Request| {
            let mounted = Arc::clone(&mounted);
            async move {
                let _context = context;
                answer(&mounted, request, max_body).await
            }
        };
        let mut router = lock(&intake.shared.router);
        let before = router.clone();
        let added = catch_unwind(AssertUnwindSafe(|| before.route(&self.path, on(filter, handler))));
        *router = added.map_err(|_| {
            OptionError::new("path", format_args!("{:?}", self.path), "an axum path that no other route has")
        })?;
        Ok(Feed::none())
    }
}

async fn answer<O: IntoResponse + Send + 'static>(
    mounted: &Mounted<http::Request<Bytes>, O>,
    request: Request,
    max_body: usize,
) -> Response {
    let (head, body) = request.into_parts();
    let body = match read(body, max_body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let correlation = head.headers.get(CORRELATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut exchange = Exchange::new(http::Request::from_parts(head, body));
    if let Some(correlation) = correlation {
        exchange = exchange.correlated(&correlation);
    }
    match mounted.fly(exchange, mounted.spot).await {
        Ok(settled) => settled.body.into_response(),
        Err(Halt::Dropped) => StatusCode::NO_CONTENT.into_response(),
        Err(Halt::Failed(error)) => error.into_response(),
    }
}

/// The whole body, or what a client is told that sent too much of it or broke off.
async fn read(body: Body, max_body: usize) -> Result<Bytes, Response> {
    match Limited::new(body, max_body).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if is_too_large(&*error) => Err(StatusCode::PAYLOAD_TOO_LARGE.into_response()),
        Err(error) => {
            Err(Error::new(Code::Unreadable, format!("the body broke off: {error}")).into_response())
        }
    }
}

/// Whether a limit on its length broke the body off: ours, or one of a layer further out, whose error is wrapped.
fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    iter::successors(Some(error), |error| error.source()).any(|error| error.is::<LengthLimitError>())
}
