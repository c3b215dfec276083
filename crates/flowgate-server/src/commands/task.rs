//! `flowgate task`: cancels a task, or sends a dead one back.

use flowgate_tasks::{
    SERVER_QUEUE, TaskId,
    store::{Cancelled, Store},
};

use super::{
    failure::Failure,
    store::{print, with_known},
};
use crate::cli::{TaskChange, TaskOptions};

/// Changes what becomes of a task.
pub(crate) fn task(options: &TaskOptions) -> Result<(), Failure> {
    match &options.change {
        TaskChange::Cancel(task) => {
            with_known(&task.store, async |store, _| cancel(&*store, TaskId(task.id)).await)
        }
        TaskChange::Retry(task) => with_known(&task.store, async |store, _| {
            if !store.revive(TaskId(task.id)).await? {
                return Err(Failure::Unknown(format!("dead task {}", task.id)));
            }
            print(&format!("task {} is back in its line, as new\n", task.id))
        }),
    }
}

/// What the server sends itself is of a message, a run or a schedule, which would wait for it for ever.
async fn cancel(store: &dyn Store, id: TaskId) -> Result<(), Failure> {
    if store.look_at_task(id).await?.is_some_and(|look| look.queue == SERVER_QUEUE) {
        return Err(Failure::NotDone(format!(
            "task {id} is of the server's own queue {SERVER_QUEUE}; cancel a message with DELETE /v2/messages/{{id}}, a run \
             with `flowgate run cancel`, and delete a schedule with `flowgate schedule delete`"
        )));
    }
    match store.cancel(id).await? {
        Cancelled::Waiting => print(&format!("task {id} is cancelled: it will not start\n")),
        Cancelled::Running => print(&format!("task {id} runs: its worker was told to stop it\n")),
        Cancelled::Unknown => Err(Failure::Unknown(format!("waiting or running task {id}"))),
    }
}
