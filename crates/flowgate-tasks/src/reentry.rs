//! Work that would wait for itself.
//!
//! Owns which task runs here. A handler that waits for another task keeps its own slot meanwhile; if that
//! task waits for the very slot, neither ever ends. This is known only in the handler itself: work that it
//! spawns is work of its own.

use std::sync::Arc;

use crate::{
    explain::{Limit, Subject, explain},
    store::{Of, Store, StoreError},
    task::TaskId,
};

tokio::task_local! {
    static RUNNING: Running;
}

/// A task that runs here. Every store has a first one, so it is known by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    store: Mark,
    task: TaskId,
}

/// Tells a store from others of the same process: where its handle is. Two handles of one store are not known to be one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(usize);

impl Mark {
    pub(crate) fn of(store: &Arc<dyn Store>) -> Self {
        Mark(Arc::as_ptr(store).cast::<()>().addr())
    }
}

/// The run of a task, which is known to be that wherever it waits.
pub(crate) fn known<F: Future>(store: Mark, task: TaskId, run: F) -> impl Future<Output = F::Output> {
    RUNNING.scope(Running { store, task }, run)
}

/// Refuses to wait for a task that waits for a slot which the task that runs here has, and nobody else.
pub(crate) async fn check(store: &Arc<dyn Store>, awaited: TaskId) -> Result<(), StoreError> {
    let running =
        RUNNING.try_with(|running| *running).ok().filter(|running| running.store == Mark::of(store));
    let Some(Running { task: holding, .. }) = running else { return Ok(()) };
    let Some(told) = explain(&**store, &Subject::Task(awaited)).await? else { return Ok(()) };
    // Only what it is held by first: of a pause or a rate it may be let go before that, and by then others may have ended.
    let (of, in_use, place) = match told.held_by.first() {
        Some(Limit::KeyMax { key, in_use, max, .. }) => {
            (Of::Key(key.clone()), *in_use, format!("key `{key}` ({in_use} of {max} in use)"))
        }
        Some(Limit::QueueMax { queue, in_use, max }) => {
            (Of::Queue(queue.clone()), *in_use, format!("queue `{queue}` ({in_use} of {max} in use)"))
        }
        Some(Limit::ClusterCap { in_use, cap }) => {
            (Of::All, *in_use, format!("the cluster ({in_use} of {cap} in use)"))
        }
        _ => return Ok(()),
    };
    let is_by_weight = matches!(of, Of::Key(_));
    let holders = store.holders(of, 100).await?;
    // All that is in use is its own: read later, the holders alone may be fewer than those that were counted.
    let own = holders.iter().filter(|held| held.id == holding && !held.is_at_hand);
    let own: u32 = own.map(|held| if is_by_weight { held.weight } else { 1 }).sum();
    if own < in_use {
        return Ok(());
    }
    Err(StoreError::ReEntrant { holding, awaited, place })
}
