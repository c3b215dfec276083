//! Whether a task that was handed to its handler has begun.
//!
//! Owns the word of a handler that has to wait for something before it can begin. Till then the task's
//! timeout does not count, and a worker that stops gives the task back as one that never started.

use std::sync::Arc;

use tokio::sync::watch;

/// A handler's way to say that its task has begun.
#[derive(Clone, Debug, Default)]
pub struct Begun {
    /// `None`: a task begins with its handler.
    said: Option<Arc<watch::Sender<bool>>>,
}

impl Begun {
    /// It has not begun before it is said.
    pub(super) fn to_be_said() -> Self {
        Begun { said: Some(Arc::default()) }
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

    /// Returns when it is said.
    pub(super) async fn heard(&self) {
        if let Some(said) = &self.said {
            // It is never closed: this one is here.
            let _ = said.subscribe().wait_for(|is_said| *is_said).await;
        }
    }
}
