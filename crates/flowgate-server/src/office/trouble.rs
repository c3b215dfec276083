//! What the server says of a store that fails, on its own output.
//!
//! Owns the words and how often they are said. Clients are told nothing of it, for it quotes the database.

use std::sync::{Mutex, PoisonError};

use flowgate_tasks::store::StoreError;

use crate::{clock, terminal::say};

static LAST: Mutex<Said> = Mutex::new(Said { text: String::new(), at: 0, is_over: true });

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

/// The store has taken what was written, which it had not before. Said where that was: of a store that comes and goes, as seldom.
pub(crate) fn store_is_written_again() {
    if LAST.lock().unwrap_or_else(PoisonError::into_inner).is_over_now() {
        say("the store can be written again");
    }
}

/// The store has answered somebody who asks all the time. Said if it was away.
pub(super) fn store_answers(was_away: bool) {
    if was_away {
        // The next time that it is away is another one.
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Said { is_over: true, ..Said::default() };
        say("the store answers again");
    }
}

/// What was said last, and when, in milliseconds.
#[derive(Default)]
struct Said {
    text: String,
    at: u64,
    /// Whether it was said, too, that it is over.
    is_over: bool,
}

impl Said {
    /// Whether this is to be said now; then it was.
    fn is_news(&mut self, text: &str, now: u64) -> bool {
        let is_news = self.text != text || now.abs_diff(self.at) >= AGAIN;
        if is_news {
            *self = Said { text: text.to_owned(), at: now, is_over: false };
        }
        is_news
    }

    /// Whether its end is to be said; then it was.
    fn is_over_now(&mut self) -> bool {
        !std::mem::replace(&mut self.is_over, true)
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

    // Seen to fail: with every return said, there were hundreds of them behind one failure that was said.
    #[test]
    fn s1_the_end_of_an_outage_is_said_where_its_beginning_was() {
        let mut said = Said { is_over: true, ..Said::default() };
        assert!(!said.is_over_now(), "nothing was wrong");
        assert!(said.is_news("away", 1000) && said.is_over_now());
        for now in [1001, 1002] {
            assert!(!said.is_news("away", now) && !said.is_over_now(), "a minute has one of each");
        }
        assert!(
            said.is_news("full", 1003) && said.is_news("away", 1004) && said.is_over_now(),
            "one end of both"
        );
        assert!(!said.is_over_now());
    }
}
