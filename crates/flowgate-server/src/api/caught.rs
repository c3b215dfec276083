//! A handler that panics is answered for: with 500 and a number that stands in the log, too. The connection and the others on
//! it are not cut off for it.

use std::{
    any::Any,
    future::{Future as _, poll_fn},
    io::{self, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use axum::{
    extract::Request,
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::reply::Problem;
use crate::office::random_text;

/// Runs what is below.
///
/// Cancel safety: dropped, it drops the request, as without it.
pub(crate) async fn caught(request: Request, next: Next) -> Response {
    let mut answer = pin!(next.run(request));
    let answered =
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        });
    match answered.await {
        Ok(response) => response,
        Err(panic) => {
            let id = random_text(10);
            let _ = writeln!(io::stderr(), "error: {id}: a request could not be answered: {}", said(&*panic));
            let text = format!("this server could not answer; its log says why under {id}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, middleware, routing::get};
    use tower_service::Service as _;

    use super::*;

    #[tokio::test]
    async fn s2_a_handler_that_panics_is_answered_with_a_number() {
        // Seen to fail: without the layer, the panic came out of the service.
        let broken = async || -> StatusCode {
            tokio::task::yield_now().await;
            panic!("broken")
        };
        let app = Router::new().route("/broken", get(broken)).route("/", get(async || "fine"));
        let mut app = app.layer(middleware::from_fn(caught));
        let ask = |path: &str| Request::builder().uri(path).body(Body::empty()).expect("a request");
        let answer = app.call(ask("/broken")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = axum::body::to_bytes(answer.into_body(), 1000).await.expect("a body");
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(text.contains("its log says why under") && !text.contains("broken"), "{text}");
        assert_eq!(app.call(ask("/")).await.expect("an answer").status(), StatusCode::OK);
    }
}
