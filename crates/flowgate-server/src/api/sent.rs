//! The body of a request, within its bound.

use std::{fmt::Display, time::Duration};

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Request},
    http::StatusCode,
};
use http_body::Body as _;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::reply::Problem;
use crate::office::MOST_OF_A_BODY;

/// How long a body may take: it holds one of the places of the API's gate meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body, read to its end.
pub(crate) struct Sent(pub(crate) Bytes);

impl Sent {
    /// The body of a request, of so many bytes at most.
    pub(crate) async fn within(mut request: Request, most: usize) -> Result<Self, Problem> {
        let slow = |_| {
            let text = format!("the body did not arrive within {PATIENCE:?}");
            Problem::new(StatusCode::REQUEST_TIMEOUT, text)
        };
        let too_large = || {
            let most = match most / (1024 * 1024) {
                0 => format!("{} KiB", most / 1024),
                most => format!("{most} MiB"),
            };
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too large; send up to {most}"))
        };
        // Whoever says how much it is, and waits for a word before sending it, need not send it.
        if request.body().size_hint().lower() > most as u64 {
            return Err(too_large());
        }
        DefaultBodyLimit::max(most).apply(&mut request);
        let read = timeout(PATIENCE, Bytes::from_request(request, &())).await.map_err(slow)?;
        read.map(Sent).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(),
            status => Problem::new(status, rejection.body_text()),
        })
    }

    /// The object that the body is. A list is none: its items would be read as the fields in their order, and an empty one as an
    /// object that names nothing, which for many calls means everything.
    pub(crate) fn object<T: DeserializeOwned>(&self, form: &str) -> Result<T, Problem> {
        let wrong = |why: &dyn Display| Problem::bad(format!("the body cannot be read ({why}); {form}"));
        match self.0.trim_ascii_start().first() {
            Some(b'[') => Err(wrong(&"it is a list")),
            _ => serde_json::from_slice(&self.0).map_err(|error| wrong(&error)),
        }
    }

    /// The same where a body may be left out.
    pub(crate) fn object_if_any<T: DeserializeOwned>(&self, form: &str) -> Result<Option<T>, Problem> {
        if self.0.trim_ascii().is_empty() { Ok(None) } else { self.object(form).map(Some) }
    }
}

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        Sent::within(request, MOST_OF_A_BODY).await
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
