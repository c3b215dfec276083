//! The body of a request, within its bound.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::StatusCode,
};

use tokio::time::timeout;

use super::reply::Problem;
use crate::office::MOST_OF_A_BODY;

/// How long a body may take: it holds one of the places of the API's gate meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body, read to its end.
pub(crate) struct Sent(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let slow = |_| {
            let text = format!("the body did not arrive within {PATIENCE:?}");
            Problem::new(StatusCode::REQUEST_TIMEOUT, text)
        };
        let read = timeout(PATIENCE, Bytes::from_request(request, state)).await.map_err(slow)?;
        read.map(Sent).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let most = MOST_OF_A_BODY / 1024 / 1024;
                Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("the body is too large; send up to {most} MiB"),
                )
            }
            status => Problem::new(status, rejection.body_text()),
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, response::IntoResponse};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s4_a_body_that_does_not_come_gives_its_place_back() {
        // Seen to fail: without the timeout, it waits for ever.
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let refused = Sent::from_request(Request::new(never), &()).await.err().expect("it never comes");
        assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
