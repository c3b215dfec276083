//! The sender's side: tasks go in, results come out.
//!
//! Owns coalescing: what many callers send at the same time is stored in one transaction, and each is answered when that has
//! committed. Nobody waits for a batch to fill: a send that finds nothing under way goes at once, or as soon as others that are ready
//! had their turn to join it.

use std::{sync::Arc, time::Duration};

use tokio::sync::{broadcast::error::RecvError, mpsc, oneshot};

use crate::{
    reentry,
    store::{Cancelled, Sent, State, Store, StoreError, TaskLook, Wake},
    task::{NewTask, TaskId},
};

/// How many sends may wait for the store before their callers do.
const WAITING: usize = 4096;
/// How many tasks one transaction stores at most, unless they were sent as one.
const BATCH: usize = 1024;
/// How often an end is looked for without being told: a net, for wake-ups that got lost.
const LOOK: Duration = Duration::from_secs(1);

/// Sends tasks and asks after them. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    sends: mpsc::Sender<Send>,
}

/// Tasks of one caller: all of them are stored, or none.
struct Send {
    tasks: Vec<NewTask>,
    answer: oneshot::Sender<Result<Vec<Sent>, StoreError>>,
}

impl Client {
    /// A client of this store. Needs a tokio runtime.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (sends, waiting) = mpsc::channel(WAITING);
        // Ends when the last clone of the client is gone.
        tokio::spawn(coalesce(Arc::clone(&store), waiting));
        Client { store, sends }
    }

    /// Stores one task, together with what others send at the same time.
    ///
    /// # Cancel safety
    /// Dropped, the task may be stored or not.
    pub async fn send(&self, task: NewTask) -> Result<Sent, StoreError> {
        let sent = self.send_all(vec![task]).await?;
        Ok(*sent.first().expect("each task that is sent is answered for"))
    }

    /// Stores these tasks in this order: all of them, or none; together with what others send at the same time.
    ///
    /// # Cancel safety
    /// Dropped, all of the tasks may be stored, or none.
    pub async fn send_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Sent>, StoreError> {
        // Here, for a slip of one caller is no fault of the others.
        tasks.iter().try_for_each(NewTask::check)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Database {
            doing: "stored a task",
            why: "the client's runtime has ended".to_owned(),
        };
        self.sends.send(Send { tasks, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// What is known of a task. `None`: it never was, or it is done and left no trace.
    pub async fn look(&self, id: TaskId) -> Result<Option<TaskLook>, StoreError> {
        self.store.look_at_task(id).await
    }

    /// Waits for the end of a task: its result, or why it will not run. `None`: it left no trace, because it does not keep its
    /// result.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReEntrant`] in a handler whose own task has the slot that the other one waits for: it would wait for itself.
    pub async fn wait(&self, id: TaskId) -> Result<Option<State>, StoreError> {
        let mut wakes = self.store.wakes();
        loop {
            let Some(look) = self.store.look_at_task(id).await? else { return Ok(None) };
            match look.state {
                end @ (State::Done { .. } | State::Dead { .. }) => return Ok(Some(end)),
                State::Held { is_at_hand: false, .. } => {}
                State::Held { worker, .. } => reentry::check_at_hand(&self.store, &look, worker).await?,
                _ => reentry::check(&self.store, id).await?,
            }
            let ended = async {
                loop {
                    match wakes.recv().await {
                        Ok(Wake::Ended(ended)) if ended == id => return,
                        Ok(Wake::Missed) | Err(RecvError::Lagged(_)) => return,
                        Ok(_) => {}
                        Err(RecvError::Closed) => std::future::pending().await,
                    }
                }
            };
            // A task that keeps no result tells nobody of its end.
            let _ = tokio::time::timeout(LOOK, ended).await;
        }
    }

    /// Stops a task from starting, or tells its worker to stop it.
    pub async fn cancel(&self, id: TaskId) -> Result<Cancelled, StoreError> {
        self.store.cancel(id).await
    }

    /// The same for many at once: what became of each, in their order.
    ///
    /// # Errors
    ///
    /// If the store fails; some may have been cancelled by then.
    pub async fn cancel_all(&self, ids: Vec<TaskId>) -> Result<Vec<Cancelled>, StoreError> {
        self.store.cancel_all(ids).await
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

async fn coalesce(store: Arc<dyn Store>, mut waiting: mpsc::Receiver<Send>) {
    let mut left = None;
    while let Some(Send { mut tasks, answer }) = match left.take() {
        Some(left) => Some(left),
        None => waiting.recv().await,
    } {
        let mut answers = vec![(tasks.len(), answer)];
        loop {
            if store.gathers_sends() {
                // Whoever is about to send is let run first, for as long as that brings more.
                tokio::task::yield_now().await;
            }
            let before = answers.len();
            while left.is_none()
                && let Ok(more) = waiting.try_recv()
            {
                if tasks.len() + more.tasks.len() > BATCH {
                    left = Some(more);
                } else {
                    answers.push((more.tasks.len(), more.answer));
                    tasks.extend(more.tasks);
                }
            }
            if answers.len() == before || left.is_some() || !store.gathers_sends() {
                break;
            }
        }
        let sent = store.send(tasks).await;
        let mut each = sent.as_deref().unwrap_or_default().iter();
        for (count, answer) in answers {
            let own = each.by_ref().take(count).copied().collect();
            // One who does not wait any more need not be told.
            let _ = answer.send(sent.as_ref().map(|_| own).map_err(Clone::clone));
        }
    }
}
