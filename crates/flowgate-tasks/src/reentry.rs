//! Work that would wait for itself.
//!
//! Owns which task runs here. A handler that waits for another task keeps its own slot meanwhile; if that
//! task waits for the very slot, neither ever ends. This is known only in the handler itself: work that it
//! spawns is work of its own.

use std::sync::Arc;

use crate::{
    explain::{Limit, Subject, explain},
    store::{Holder, Of, Store, StoreError, TaskLook, WorkerId},
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

/// The task that runs here, if it is one of this store.
fn running_here(store: &Arc<dyn Store>) -> Option<TaskId> {
    let running = RUNNING.try_with(|running| *running).ok();
    running.filter(|running| running.store == Mark::of(store)).map(|running| running.task)
}

/// Refuses to wait for a task that is at hand in a worker and can start there only in the place of the task that runs here: that is the
/// only one of its key in the worker, the only one of its queue where that is full, or the only one in the worker at all.
pub(crate) async fn check_at_hand(
    store: &Arc<dyn Store>,
    awaited: &TaskLook,
    worker: WorkerId,
) -> Result<(), StoreError> {
    let Some(holding) = running_here(store) else { return Ok(()) };
    let holders = store.holders(Of::All, u32::MAX).await?;
    let running = || holders.iter().filter(|held| !held.is_at_hand);
    if !running().any(|held| held.id == holding && held.worker == worker) {
        return Ok(());
    }
    let is_alone = |of: &dyn Fn(&Holder) -> bool| {
        running().filter(|held| of(held)).all(|held| held.id == holding)
            && running().any(|held| held.id == holding && of(held))
    };
    let of_queue = |held: &Holder| held.queue == awaited.queue;
    let is_full = async || -> Result<bool, StoreError> {
        let queues = store.queues_counted(0).await?;
        let own = queues.iter().find(|queue| queue.limits.name == awaited.queue);
        Ok(own.is_some_and(|queue| queue.limits.max.is_some_and(|max| queue.in_use >= max)))
    };
    let place = match &awaited.key {
        Some(key) if is_alone(&|held| of_queue(held) && held.key.as_ref() == Some(key)) => {
            format!("key `{key}`")
        }
        Some(_) => return Ok(()),
        None if is_alone(&|held| held.worker == worker) => format!("worker {worker}"),
        None if is_alone(&of_queue) && is_full().await? => format!("queue `{}`", awaited.queue),
        None => return Ok(()),
    };
    let place = format!("{place} (where it is at hand)");
    Err(StoreError::ReEntrant { holding, awaited: awaited.id, place })
}

/// Refuses to wait for a task that waits for a slot which the task that runs here has, and nobody else.
pub(crate) async fn check(store: &Arc<dyn Store>, awaited: TaskId) -> Result<(), StoreError> {
    let Some(holding) = running_here(store) else { return Ok(()) };
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

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::time::Duration;

    use flowgate_core::Limits;

    use super::*;
    use crate::{
        store::{NewWorker, Sqlite, Turn, Want},
        task::NewTask,
    };

    /// A store with a key of one slot that its first task has, and for which the second waits.
    async fn store() -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
        let one = || NewTask::new("one", Vec::new()).key("k");
        let limits = Limits::builder().max(1).build().expect("limits");
        store.send(vec![one().limits(limits), one().limits(limits)]).await.expect("sent");
        let lease = Duration::from_secs(60);
        let worker = NewWorker { name: "one".to_owned(), slots: 2, queues: Vec::new(), lease };
        let worker = store.register(worker).await.expect("a worker");
        let want = Some(Want { slots: 2, per_queue: 2, with_locks: true });
        let turned = store.turn(worker, Turn { want, ..Turn::default() }).await.expect("a turn");
        assert_eq!(turned.claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [TaskId(1)]);
        store
    }

    // Seen to fail: without the comparison of stores, it was refused to wait for the second store's.
    #[tokio::test]
    async fn g12_a_task_of_another_store_is_another_one_whatever_its_number() {
        let (own, other) = (store().await, store().await);
        let run = async { (check(&own, TaskId(2)).await, check(&other, TaskId(2)).await) };
        let (refused, waits) = known(Mark::of(&own), TaskId(1), run).await;
        let both = (TaskId(1), TaskId(2));
        let named = matches!(refused, Err(StoreError::ReEntrant { holding, awaited, .. }) if (holding, awaited) == both);
        assert!(named && waits.is_ok(), "{refused:?}, {waits:?}");
    }
}
