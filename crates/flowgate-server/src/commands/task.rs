//! `flowgate task`: cancels a task, or sends a dead one back.

use flowgate_tasks::{TaskId, store::Cancelled};

use super::{
    failure::Failure,
    store::{print, with_known},
};
use crate::cli::{TaskChange, TaskOptions};

/// Changes what becomes of a task.
pub(crate) fn task(options: &TaskOptions) -> Result<(), Failure> {
    match &options.change {
        TaskChange::Cancel(task) => {
            with_known(&task.store, async |store, _| match store.cancel(TaskId(task.id)).await? {
                Cancelled::Waiting => print(&format!("task {} is cancelled: it will not start\n", task.id)),
                Cancelled::Running => {
                    print(&format!("task {} runs: its worker was told to stop it\n", task.id))
                }
                Cancelled::Unknown => Err(Failure::Unknown(format!("waiting or running task {}", task.id))),
            })
        }
        TaskChange::Retry(task) => with_known(&task.store, async |store, _| {
            if !store.revive(TaskId(task.id)).await? {
                return Err(Failure::Unknown(format!("dead task {}", task.id)));
            }
            print(&format!("task {} is back in its line, as new\n", task.id))
        }),
    }
}
