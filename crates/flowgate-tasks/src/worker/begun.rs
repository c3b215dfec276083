//! Whether a task that was handed to its handler has begun.
//!
//! Owns the word of a handler that has to wait for something before it can begin, and until when it may wait.
//! Till then the task's timeout does not count, and a worker that stops gives the task back as one that never
//! started.

use std::sync::Arc;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::clock;

/// A handler's way to say that its task has begun.
#[derive(Clone, Debug, Default)]
pub struct Begun {
    /// `None`: a task begins with its handler.
    said: Option<Arc<watch::Sender<bool>>>,
    by: Option<Instant>,
}

impl Begun {
    /// It begins with its handler, if it does so by then.
    pub(super) fn at_once(by: Option<Instant>) -> Self {
        Begun { said: None, by }
    }

    /// It has not begun before it is said.
    pub(super) fn to_be_said(by: Option<Instant>) -> Self {
        Begun { said: Some(Arc::default()), by }
    }

    /// From when on it must not begin, for its `good_until` has passed. One of which it was not said by then is dropped.
    pub fn by(&self) -> Option<Instant> {
        self.by
    }

    /// Whether it is too late to begin.
    pub(super) fn is_late(&self) -> bool {
        self.by.is_some_and(|by| by <= clock::now())
    }

    /// It has begun.
    pub fn say(&self) {
        if let Some(said) = &self.said {
            said.send_replace(true);
        }
    }

    pub(super) fn is_said(&self) -> bool {
        self.said.as_ref().is_none_or(|said| *said.borrow())
    }

    /// Returns when it is said, or too late to be: whether it was said.
    pub(super) async fn heard(&self) -> bool {
        let Some(said) = &self.said else { return true };
        let mut said = said.subscribe();
        let late = async {
            match self.by {
                Some(by) => sleep_until(by).await,
                None => std::future::pending().await,
            }
            // A handler that waits for the same moment has the last word.
            tokio::task::yield_now().await;
        };
        tokio::select! {
            biased;
            // It is never closed: this one is here.
            () = async { drop(said.wait_for(|is_said| *is_said).await) } => true,
            () = late => self.is_said(),
        }
    }
}
