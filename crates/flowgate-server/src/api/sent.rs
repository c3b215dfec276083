//! The body of a request, within its bound.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::StatusCode,
};

use super::reply::Problem;
use crate::office::MOST_OF_A_BODY;

/// A body, read to its end.
pub(crate) struct Sent(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Bytes::from_request(request, state).await;
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
