//! What the server says of a store that fails, on its own output.
//!
//! Owns the words and how often they are said. Clients are told nothing of it, for it has words of the database in it.

use std::sync::{Mutex, PoisonError};

use flowgate_tasks::store::StoreError;

use crate::{clock, terminal::say};

static LAST: Mutex<Said> = Mutex::new(Said { text: String::new(), at: 0 });

/// The same is said again after so long: who looks at the last lines sees that it is still away.
const AGAIN: u64 = 60_000;

/// Says why the store failed, the same thing once a minute.
pub(crate) fn store_failed(error: &StoreError) {
    let text = error.to_string();
    let is_news = LAST.lock().unwrap_or_else(PoisonError::into_inner).is_news(&text, clock::now());
    if is_news {
        say(&text);
    }
}

/// The store has answered somebody who asks all the time. Said if it was away.
pub(super) fn store_answers(was_away: bool) {
    if was_away {
        // The next time that it is away is another one.
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Said::default();
        say("the store answers again");
    }
}

/// What was said last, and when, in milliseconds.
#[derive(Default)]
struct Said {
    text: String,
    at: u64,
}

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
