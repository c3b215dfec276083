//! Work that would wait for itself.
//!
//! Owns what is known of it: which task runs here. A handler that waits for another task gives up no slot of its own meanwhile; if that
//! task waits for the very slot, neither ever ends. It is known only in the handler itself: what it spawns is work of its own.

use crate::{
    explain::{Limit, Subject, explain},
    store::{Store, StoreError},
    task::TaskId,
};

tokio::task_local! {
    static RUNNING: TaskId;
}

/// The run of a task, which is known to be that wherever it waits.
pub(crate) fn known<F: Future>(task: TaskId, run: F) -> impl Future<Output = F::Output> {
    RUNNING.scope(task, run)
}

/// Refuses to wait for a task that waits for a slot which the task that runs here has, and nobody else.
pub(crate) async fn check(store: &dyn Store, awaited: TaskId) -> Result<(), StoreError> {
    let Ok(holding) = RUNNING.try_with(|task| *task) else { return Ok(()) };
    let Some(told) = explain(store, &Subject::Task(awaited)).await? else { return Ok(()) };
    let place = told.held_by.iter().find_map(|limit| match limit {
        Limit::KeyMax { key, in_use, max, .. } => Some(format!("key `{key}` ({in_use} of {max} in use)")),
        Limit::QueueMax { queue, in_use, max } => Some(format!("queue `{queue}` ({in_use} of {max} in use)")),
        Limit::ClusterCap { in_use, cap } => Some(format!("the cluster ({in_use} of {cap} in use)")),
        _ => None,
    });
    let holds_alone = !told.holders.is_empty() && told.holders.iter().all(|held| held.task == holding.0);
    match place.filter(|_| holds_alone) {
        Some(place) => Err(StoreError::ReEntrant { holding, awaited, place }),
        None => Ok(()),
    }
}
