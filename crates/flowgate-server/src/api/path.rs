//! The names in a request's path.

use axum::{
    extract::{FromRequestParts, path::ErrorKind, rejection::PathRejection},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::reply::Problem;

/// As axum's own, but one that is not text is answered as everything else that is wrong.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named = axum::extract::Path::from_request_parts(parts, state).await;
        named.map(|axum::extract::Path(names)| Path(names)).map_err(|rejection| match &rejection {
            PathRejection::FailedToDeserializePathParams(failed)
                if matches!(failed.kind(), ErrorKind::InvalidUtf8InPathParam { .. }) =>
            {
                let path: String = parts.uri.path().chars().take(100).collect();
                Problem::bad(format!(
                    "the path is {path:?}; send text in UTF-8, percent-encoded where needed"
                ))
            }
            _ => Problem::new(rejection.status(), rejection.body_text()),
        })
    }
}
