//! What is told when a request cannot be answered as it was meant.

use std::sync::{Mutex, PoisonError};

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use flowgate_tasks::store::StoreError;
use serde_json::json;

use crate::{clock, message::Fault, office::Refused, terminal::say};

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

    /// 400: something is to be sent in another form.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, text)
    }

    /// 404, with what there is none of.
    pub(crate) fn missing(what: &str, name: &str) -> Self {
        let name: String = name.chars().take(100).collect();
        Problem::new(StatusCode::NOT_FOUND, format!("there is no {what} {name:?}"))
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
            error => {
                told(&error);
                let text =
                    "the store failed or cannot be reached; try again (the server's own output says why)";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

/// What was said last of a store, and when, in milliseconds.
#[derive(Default)]
struct Said {
    text: String,
    at: u64,
}

/// The same is said again after so long: the next time that the store is away is another one.
const AGAIN: u64 = 60_000;

impl Said {
    /// Whether this is to be said now; then it was.
    fn is_news(&mut self, text: &str, now: u64) -> bool {
        let is_news = self.text != text || now.abs_diff(self.at) >= AGAIN;
        if is_news {
            *self = Said { text: text.to_owned(), at: now };
        }
        is_news
    }
}

/// Says on the server's own output why the store failed, the same thing once a minute. Clients are told nothing of it, for it has
/// words of the database in it.
fn told(error: &StoreError) {
    static LAST: Mutex<Said> = Mutex::new(Said { text: String::new(), at: 0 });
    let text = error.to_string();
    let is_news = LAST.lock().unwrap_or_else(PoisonError::into_inner).is_news(&text, clock::now());
    if is_news {
        say(&text);
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Fault(fault) => fault.into(),
            Refused::Store(error) => error.into(),
            Refused::Unknown(group) => Problem::missing("URL group", &group),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_store_is_said_once_a_minute_and_anew_when_it_is_another_thing() {
        let mut said = Said::default();
        let told = [
            ("away", 1000),
            ("away", 2000),
            ("full", 2001),
            ("away", 2002),
            ("away", 62_001),
            ("away", 62_002),
        ]
        .map(|(text, now)| said.is_news(text, now));
        assert_eq!(told, [true, false, true, true, false, true]);
        assert!(said.is_news("away", 1), "a clock that was set back silences nobody");
    }
}
