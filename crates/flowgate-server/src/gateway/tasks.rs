//! The tasks of a worker.
//!
//! Owns all of them: whatever is spawned in a worker is spawned here, waited for here, and ended here.

use std::{
    future::Future,
    rc::{Rc, Weak},
};

use hyper::rt::Executor;
use tokio::task::spawn_local;

use super::{
    clock::Clock,
    watch::{Current, Watched, Watches},
};

/// The tasks of a worker, by their records: each is there for exactly as long as its task.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) watches: Rc<Watches>,
    pub(super) current: Rc<Current>,
}

/// Lets hyper spawn, with a deadline for each.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    pub(super) tasks: Rc<Tasks>,
    pub(super) clock: Rc<Clock>,
}

impl Tasks {
    pub(super) fn spawn<F: Future<Output = ()> + 'static, H: 'static>(&self, task: Watched<F, H>) {
        // Nobody waits for this one: its record says when it is gone. A set of such handles took 80 bytes for each.
        drop(spawn_local(task));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.watches.len()
    }

    /// Waits until one more has ended. A task that panicked has ended too: the panic was told where it happened.
    ///
    /// Cancel safety: dropped, no end is missed.
    pub(super) async fn one_ended(&self) {
        self.watches.one_removed().await;
    }

    /// Ends all that is left.
    pub(super) fn abort(&self) {
        self.watches.end_all();
    }
}

impl<F: Future + 'static> Executor<F> for Spawner {
    fn execute(&self, task: F) {
        let places = (&self.clock, &self.tasks.watches, &self.tasks.current);
        self.tasks.spawn(Watched::new(places, Weak::new(), (), |_| async move {
            task.await;
        }));
    }
}
