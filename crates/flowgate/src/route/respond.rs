//! An error as an HTTP response.
//!
//! Owns the status of each code and the problem document (RFC 9457) that tells it. What happened inside is not told to a
//! client that cannot do anything about it.

use axum::response::{IntoResponse, Response};
use flowgate_core::Code;
use http::{HeaderValue, StatusCode, header};

use super::error::Error;
use crate::http::answer::escaped;

impl Error {
    /// Returns the status that an HTTP client is told.
    pub fn status(&self) -> StatusCode {
        match self.code() {
            Code::Invalid | Code::Unreadable => StatusCode::BAD_REQUEST,
            Code::RateRefused => StatusCode::TOO_MANY_REQUESTS,
            Code::Refused | Code::BreakerOpen | Code::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Code::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Code::Unreachable => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        let detail = match status {
            StatusCode::INTERNAL_SERVER_ERROR => "the route failed",
            // Which host that was is nobody's business out there.
            StatusCode::BAD_GATEWAY => "the service behind the route could not be reached",
            _ => self.message(),
        };
        let text = format!(
            r#"{{"type":"about:blank","title":"{}","status":{},"code":"{}","detail":"{}"}}"#,
            status.canonical_reason().unwrap_or_default(),
            status.as_u16(),
            self.code(),
            escaped(detail)
        );
        let mut response = (status, text).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_shed() && self.is_retryable() {
            let after = self.refusal().and_then(|refusal| refusal.retry_after).map_or(1, |after| {
                // Rounded up: one who comes too early has come in vain.
                after.as_secs() + u64::from(after.subsec_nanos() > 0)
            });
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.max(1)));
        }
        response
    }
}
