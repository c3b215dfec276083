//! What is told when a request cannot be answered as it was meant.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use flowgate_tasks::store::StoreError;
use serde_json::json;

use crate::{
    message::Fault,
    office::{Refused, store_failed},
};

/// A status and a sentence.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    text: String,
}

/// An answer, or why there is none.
pub(crate) type Answer = Result<Response, Problem>;

impl Problem {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Problem { status, text: text.into() }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// 400: something is to be sent in another form.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, text)
    }

    /// 404, with what there is none of.
    pub(crate) fn missing(what: &str, name: &str) -> Self {
        let name: String = name.chars().take(100).collect();
        Problem::new(StatusCode::NOT_FOUND, format!("there is no {what} {name:?}"))
    }

    /// The same, to a client that sends a step of a run: of 400 it takes the run for ended, and nothing else would end it.
    pub(crate) fn in_run(self, is_of_run: bool) -> Self {
        match self.status {
            StatusCode::BAD_REQUEST if is_of_run => {
                Problem { status: StatusCode::UNPROCESSABLE_ENTITY, ..self }
            }
            _ => self,
        }
    }

    /// The same, with where in a list it stood.
    pub(crate) fn at(self, index: usize) -> Self {
        Problem { text: format!("entry {index} of the batch: {}", self.text), ..self }
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Problem::bad(fault.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Option(error) => Problem::bad(error.to_string()),
            // It is well, and says who is in the way.
            StoreError::HeldUp { .. } => Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            error => {
                store_failed(&error);
                let text = "the store failed or cannot be reached; try again (the server's log says why)";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Fault(fault) => fault.into(),
            Refused::Store(error) => error.into(),
            Refused::Empty(group) => {
                let text = format!(
                    "the URL group {group:?} has no endpoints; POST /v2/topics/{group}/endpoints with some first"
                );
                Problem::new(StatusCode::NOT_FOUND, text)
            }
            Refused::Unknown(group) => {
                let missing = Problem::missing("URL group", &group);
                Problem {
                    text: format!("{}; a URL begins with http:// or https://", missing.text),
                    ..missing
                }
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.text }))).into_response()
    }
}

/// 200 and this value.
pub(crate) fn ok(value: impl serde::Serialize) -> Answer {
    Ok(Json(value).into_response())
}

/// 200 and nothing else.
pub(crate) fn done() -> Answer {
    Ok(StatusCode::OK.into_response())
}
