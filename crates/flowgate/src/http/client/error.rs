//! Why there is no response.
//!
//! Owns the error of a [`Client`](super::Client). A refusal by the server is a response, not an error: it is handed on as it
//! came.

use std::time::Duration;

use flowgate_core::{Code, Refusal};

/// Any error of the wrapped service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The wrapped service failed. Whether the server saw the request is not known, so it was not sent again.
    #[error(transparent)]
    Service(BoxError),

    /// Not sent: our own gate for this key refused (`queue-full`, `queue-timeout`), or there is no room for another key
    /// (`keys-full`).
    #[error("not sent: {0}")]
    Refused(Refusal),

    /// Not sent: the server refused most of what it was sent lately.
    #[error("{}: not sent to {key:?}, which refuses most requests", Code::Refused)]
    Throttled {
        /// The key of the destination.
        key: String,
    },

    /// Not sent: its turn did not come before the deadline.
    #[error("{}: not sent to {key:?} within {deadline:?}", Code::Refused)]
    Deadline {
        /// The key of the destination.
        key: String,
        /// How long it was allowed to take.
        deadline: Duration,
    },
}

impl Error {
    /// Whether the server may have seen the request. If not, sending it again is safe.
    pub fn may_have_been_sent(&self) -> bool {
        matches!(self, Error::Service(_))
    }
}
