//! The tasks a worker holds: those that run, and those that ended and are not settled yet.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::handlers::{Context, Failure, Handlers};
use crate::{
    record::Parts,
    store::{Claimed, End, Settle},
    task::{Retry, TaskId},
};

type Outcome = Result<Vec<u8>, Failure>;

/// Tasks that were claimed and not settled.
#[derive(Default)]
pub(super) struct Held {
    runs: JoinSet<Outcome>,
    running: HashMap<Id, Running>,
    by_task: HashMap<TaskId, AbortHandle>,
    ended: Vec<Settle>,
    /// How many of these have been replaced, or left nothing to replace.
    replaced: usize,
}

struct Running {
    task: Claimed,
    retry: Retry,
}

impl Held {
    /// Starts a task.
    pub(super) fn start(&mut self, task: Claimed, handlers: &Handlers) {
        let Parts { kind, body, retry, timeout, .. } = match Parts::of(&task.record) {
            Ok(record) => record,
            Err(error) => {
                return self.ended.push(Settle { task, end: End::Dead { error: error.to_string() } });
            }
        };
        let context = Context { id: task.id, kind: Arc::from(kind), attempt: task.attempt };
        let run = handlers.run(context, body.to_vec());
        let handle = match timeout {
            None => self.runs.spawn(run),
            Some(timeout) => self.runs.spawn(async move {
                let late =
                    |_| Err(Failure::new(format_args!("it took longer than its timeout of {timeout:?}")));
                tokio::time::timeout(timeout, run).await.unwrap_or_else(late)
            }),
        };
        self.by_task.insert(task.id, handle.clone());
        self.running.insert(handle.id(), Running { task, retry });
    }

    /// Waits until something has ended, and takes all that has. Pending while nothing runs.
    pub(super) async fn next(&mut self) {
        match self.runs.join_next_with_id().await {
            None => std::future::pending().await,
            Some(first) => self.end(first),
        }
        // What is about to end goes along: short tasks are settled by the hundred.
        tokio::task::yield_now().await;
        while let Some(more) = self.runs.try_join_next_with_id() {
            self.end(more);
        }
    }

    fn end(&mut self, joined: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match joined {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        // What was given up is not settled any more.
        let Some(Running { task, retry }) = self.running.remove(&id) else { return };
        self.by_task.remove(&task.id);
        let wait = retry.wait_after(task.attempt);
        let end = match outcome {
            Ok(Ok(result)) => End::Done { result },
            Ok(Err(Failure { is_not_begun: true, .. })) => End::Returned,
            Ok(Err(Failure { error, is_final: true, .. })) => End::Dead { error },
            Ok(Err(Failure { error, retry_after, .. })) => {
                End::Failed { error, retry_after: retry_after.unwrap_or(wait) }
            }
            Err(error) if error.is_cancelled() => End::Cancelled,
            Err(error) => End::Failed { error: panic_text(error), retry_after: wait },
        };
        self.ended.push(Settle { task, end });
    }

    /// Stops a task, if it runs here. It is settled as cancelled when it has stopped.
    pub(super) fn cancel(&mut self, id: TaskId) {
        if let Some(handle) = self.by_task.get(&id) {
            handle.abort();
        }
    }

    /// Stops everything, without settling it: it belongs to others now. Returns when nothing runs any more.
    pub(super) async fn give_up(&mut self) {
        self.running.clear();
        self.by_task.clear();
        self.take_ended();
        self.runs.shutdown().await;
    }

    /// Stops everything that still runs, and lets it be tried again. Gives what was stopped.
    pub(super) async fn stop(&mut self) -> Vec<TaskId> {
        let running = std::mem::take(&mut self.running);
        self.by_task.clear();
        self.runs.shutdown().await;
        let again = |running: Running| {
            let error = "its worker was stopped before it had ended".to_owned();
            Settle { task: running.task, end: End::Failed { error, retry_after: Duration::ZERO } }
        };
        let stopped: Vec<Settle> = running.into_values().map(again).collect();
        let ids = stopped.iter().map(|settle| settle.task.id).collect();
        self.ended.extend(stopped);
        ids
    }

    /// What ended since it was last asked.
    pub(super) fn take_ended(&mut self) -> Vec<Settle> {
        self.replaced = 0;
        std::mem::take(&mut self.ended)
    }

    /// What could not be settled yet.
    pub(super) fn put_back(&mut self, settles: Vec<Settle>) {
        self.replaced += settles.len();
        self.ended.splice(0..0, settles);
    }

    /// The queues in which something ended since this was last asked.
    pub(super) fn vacancies(&mut self) -> Vec<i64> {
        let ended = self.ended.get(self.replaced..).unwrap_or_default();
        let queues = ended.iter().map(|settle| settle.task.place.queue).collect();
        self.replaced = self.ended.len();
        queues
    }

    /// Settles what never ran, when everything that ended has been replaced.
    pub(super) fn settle_unstarted(&mut self, tasks: Vec<Claimed>, end: &End) {
        self.ended.extend(tasks.into_iter().map(|task| Settle { task, end: end.clone() }));
        self.replaced = self.ended.len();
    }

    /// Stops a task without settling it: it belongs to others now. Whether it ran.
    pub(super) fn lose(&mut self, id: TaskId) -> bool {
        self.ended.retain(|settle| settle.task.id != id);
        self.replaced = self.replaced.min(self.ended.len());
        let Some(handle) = self.by_task.remove(&id) else { return false };
        self.running.remove(&handle.id());
        handle.abort();
        true
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// How many are held, settled ones not counted.
    pub(super) fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// The leases they are held under.
    pub(super) fn leases(&self) -> Vec<i64> {
        let ended = self.ended.iter().map(|settle| settle.task.lease);
        let mut leases: Vec<i64> =
            self.running.values().map(|running| running.task.lease).chain(ended).collect();
        leases.sort_unstable();
        leases.dedup();
        leases
    }
}

fn panic_text(error: JoinError) -> String {
    let said = error.into_panic();
    let text = said.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text =
        text.or_else(|| said.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned());
    format!("its handler panicked: {text}")
}
