//! The sender's side: tasks go in, results come out.
//!
//! Owns coalescing: tasks that many callers send at the same time are stored in one transaction, and each caller
//! gets its answer when that has committed. No send waits for a batch to fill: if nothing is under way it goes at
//! once, or as soon as other sends that are ready have joined it.

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
/// And how many bytes of them: a database has a bound on what one statement may carry, which many large ones would
/// reach together.
const BATCH_BYTES: usize = 32 * 1024 * 1024;
/// How often an end is looked for without being told: a net, for wake-ups that got lost.
const LOOK: Duration = Duration::from_secs(1);

/// Sends tasks to a store, and asks what became of them. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    sends: mpsc::Sender<Send>,
}

/// Tasks of one caller: all of them are stored, or none.
struct Send {
    tasks: Vec<NewTask>,
    answer: Answer,
}

/// Where a caller hears of its tasks.
type Answer = oneshot::Sender<Result<Vec<Sent>, StoreError>>;

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client of this store. Needs a tokio runtime.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (sends, waiting) = mpsc::channel(WAITING);
        // Ends when the last clone of the client is gone.
        tokio::spawn(coalesce(Arc::clone(&store), waiting));
        Client { store, sends }
    }

    /// Sends one task. It is stored together with what others send at the same time.
    ///
    /// # Cancel safety
    /// Dropped, the task may be stored or not.
    pub async fn send(&self, task: NewTask) -> Result<Sent, StoreError> {
        let sent = self.send_all(vec![task]).await?;
        Ok(*sent.first().expect("each task that is sent is answered for"))
    }

    /// Sends several tasks in this order; either all of them are stored, or none. They are stored together with what
    /// others send at the same time.
    ///
    /// # Cancel safety
    /// Dropped, all of the tasks may be stored, or none.
    pub async fn send_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Sent>, StoreError> {
        // Checked here, before tasks of several callers are put together: a mistake of one fails no other.
        tasks.iter().try_for_each(NewTask::check)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Database {
            doing: "storing a task",
            why: "the client's runtime has ended".to_owned(),
        };
        self.sends.send(Send { tasks, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// Returns what is known of a task, or `None` if there never was such a task, or it is done and left no trace.
    pub async fn look(&self, id: TaskId) -> Result<Option<TaskLook>, StoreError> {
        self.store.look_at_task(id).await
    }

    /// Waits for the end of a task, and returns its result, or why it will not run. Returns `None` if it left no
    /// trace, because its result is not kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReEntrant`] in a handler whose own task holds the slot that the awaited task waits for:
    /// it would wait for itself.
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

    /// Cancels a task: keeps it from starting, or tells its worker to stop it.
    pub async fn cancel(&self, id: TaskId) -> Result<Cancelled, StoreError> {
        self.store.cancel(id).await
    }

    /// Cancels many tasks at once, and returns what became of each, in their order.
    ///
    /// # Errors
    ///
    /// If the store fails; some may have been cancelled by then. [`StoreError::Settling`] says which.
    pub async fn cancel_all(&self, ids: Vec<TaskId>) -> Result<Vec<Cancelled>, StoreError> {
        self.store.cancel_all(ids).await
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// What is stored in one transaction.
#[derive(Default)]
struct Batch {
    tasks: Vec<NewTask>,
    bytes: usize,
    /// How many of the tasks each caller sent, and where its answer goes.
    answers: Vec<(usize, Answer)>,
}

impl Batch {
    /// Whether what one caller sent fits in. What is sent as one is stored as one, however large.
    fn has_room_for(&self, tasks: &[NewTask]) -> bool {
        let bytes: usize = tasks.iter().map(NewTask::size).sum();
        self.tasks.is_empty() || self.tasks.len() + tasks.len() <= BATCH && self.bytes + bytes <= BATCH_BYTES
    }

    fn add(&mut self, Send { tasks, answer }: Send) {
        self.bytes += tasks.iter().map(NewTask::size).sum::<usize>();
        self.answers.push((tasks.len(), answer));
        self.tasks.extend(tasks);
    }

    async fn store(self, store: &dyn Store) {
        let sent = store.send(self.tasks).await;
        let mut each = sent.as_deref().unwrap_or_default().iter();
        for (count, answer) in self.answers {
            let own = each.by_ref().take(count).copied().collect();
            // One who does not wait any more need not be told.
            let _ = answer.send(sent.as_ref().map(|_| own).map_err(Clone::clone));
        }
    }
}

async fn coalesce(store: Arc<dyn Store>, mut waiting: mpsc::Receiver<Send>) {
    let mut left = None;
    while let Some(first) = match left.take() {
        Some(left) => Some(left),
        None => waiting.recv().await,
    } {
        let mut batch = Batch::default();
        batch.add(first);
        loop {
            if store.gathers_sends() {
                // Whoever is about to send is let run first, for as long as that brings more.
                tokio::task::yield_now().await;
            }
            let before = batch.answers.len();
            while left.is_none()
                && let Ok(more) = waiting.try_recv()
            {
                if batch.has_room_for(&more.tasks) {
                    batch.add(more);
                } else {
                    left = Some(more);
                }
            }
            if batch.answers.len() == before || left.is_some() || !store.gathers_sends() {
                break;
            }
        }
        batch.store(&*store).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_what_callers_send_together_is_bounded_in_tasks_and_in_bytes() {
        // Seen to fail: without either bound.
        let send = |count: usize, bytes: usize| Send {
            tasks: (0..count).map(|_| NewTask::new("one", vec![0; bytes])).collect(),
            answer: oneshot::channel().0,
        };
        let mut batch = Batch::default();
        assert!(batch.has_room_for(&send(BATCH + 1, 0).tasks), "what is sent as one is stored as one");
        batch.add(send(1, BATCH_BYTES / 2));
        assert!(batch.has_room_for(&send(BATCH - 1, 1).tasks));
        assert!(!batch.has_room_for(&send(BATCH, 1).tasks), "one task too many");
        assert!(!batch.has_room_for(&send(1, BATCH_BYTES / 2).tasks), "and a few bytes of its own");
    }
}
