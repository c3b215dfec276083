//! Cancellations that a worker did not hear, asked for.
//!
//! Wake-ups reach whoever listens at that moment. A worker that is far behind misses some, and a worker that
//! hears of a task whose claim is still on its way does not know it yet. The store remembers what was
//! cancelled, so both ask it.

use std::{pin::Pin, sync::Arc};

use super::service::LATE;
use crate::{store::Store, task::TaskId};

/// What has to be asked, and the question that is under way.
#[derive(Default)]
pub(super) struct CatchUp {
    question: Option<Pin<Box<dyn Future<Output = Vec<TaskId>> + Send>>>,
    /// Something may have been missed since the question was asked.
    is_behind: bool,
    /// Something may have been missed of what a turn under way claims.
    is_doubtful: bool,
}

impl CatchUp {
    /// Something may have been missed; `with_turn`: while a turn is under way.
    pub(super) fn missed(&mut self, with_turn: bool) {
        self.is_behind = true;
        self.is_doubtful |= with_turn;
    }

    /// One was cancelled that may be among what a turn under way claims.
    pub(super) fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// The turn has ended: what it claimed is known.
    pub(super) fn turned(&mut self) {
        self.is_behind |= std::mem::take(&mut self.is_doubtful);
    }

    /// Asks which of these were cancelled, if there is a reason and no such question is under way.
    pub(super) fn ask(&mut self, store: &Arc<dyn Store>, held: impl FnOnce() -> Vec<TaskId>) {
        if !self.is_behind || self.question.is_some() {
            return;
        }
        self.is_behind = false;
        let held = held();
        if held.is_empty() {
            return;
        }
        let store = Arc::clone(store);
        self.question = Some(Box::pin(async move {
            loop {
                match store.cancelled(held.clone()).await {
                    Ok(found) => return found,
                    Err(_) => tokio::time::sleep(LATE).await,
                }
            }
        }));
    }

    /// The answer, when it comes. Pending while nothing is asked.
    ///
    /// Cancel safety: dropped, the question stays.
    pub(super) async fn answer(&mut self) -> Vec<TaskId> {
        match &mut self.question {
            None => std::future::pending().await,
            Some(question) => {
                let found = question.await;
                self.question = None;
                found
            }
        }
    }
}
