//! Messages that were cancelled: what is told of them, and what is left to do when they have stopped.
//!
//! Owns that this is done whatever becomes of the server that was asked: a chore looks after each that was under way.

use std::time::Duration;

use flowgate_tasks::{
    TaskId,
    store::{State, StoreError},
};

use super::{Desk, Entry, Queue, Stage, runs::Chore};
use crate::message::{Message, Role};

/// Whoever asked looks for itself meanwhile, and most have stopped by then.
const LATER: Duration = Duration::from_secs(5);

/// Whether a task was cancelled while it was under way.
pub(crate) fn was_stopped(state: &State) -> bool {
    matches!(state, State::Dead { reason, .. } if reason == "cancelled")
}

impl Desk {
    /// A message was cancelled: its log says so, and its run, if it was to tell of the end of one.
    pub(crate) async fn tell_cancelled(&self, id: TaskId, message: Message) -> Result<(), StoreError> {
        self.end_failure_call(&message).await?;
        self.journal.add(id, &Entry::plain(Stage::Canceled, message)).await;
        Ok(())
    }

    /// What was stopped is no dead letter, nobody waits for it, and it is told: before it is gone, or a crash in between would
    /// leave nobody who knows of it.
    pub(crate) async fn bury(&self, id: TaskId, message: Message) -> Result<(), StoreError> {
        Queue::go_on_without(&*self.store, &message).await?;
        self.end_failure_call(&message).await?;
        self.journal.add_now(id, &Entry::plain(Stage::Canceled, message)).await;
        self.store.remove_dead(id).await.map(drop)
    }

    /// Has those looked after that were asked to stop: whoever has them may be gone, and so may whoever asked.
    pub(crate) async fn bury_later(&self, tasks: Vec<i64>) -> Result<(), StoreError> {
        if tasks.is_empty() {
            return Ok(());
        }
        self.client.send(Chore::Bury { tasks }.task()?.delay(LATER)).await.map(drop)
    }

    /// Buries those of these that have stopped. `false`: some are still under way.
    pub(super) async fn bury_stopped(&self, tasks: &[i64]) -> Result<bool, StoreError> {
        let mut have_ended = true;
        for id in tasks.iter().map(|task| TaskId(*task)) {
            let Some(look) = self.store.look_at_task(id).await? else { continue };
            let Some(message) = self.message_of(&look) else { continue };
            if was_stopped(&look.state) {
                self.bury(id, message.without_body()).await?;
            }
            have_ended &= !matches!(look.state, State::Held { .. });
        }
        Ok(have_ended)
    }

    async fn end_failure_call(&self, message: &Message) -> Result<(), StoreError> {
        match message.head.part.as_ref().filter(|part| part.role == Role::Failure) {
            Some(part) => self.cancel_failure_call(&part.run).await,
            None => Ok(()),
        }
    }
}
