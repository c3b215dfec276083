//! The tasks of a worker.
//!
//! Owns all of them: whatever is spawned in a worker is spawned here, waited for here, and ended here.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    rc::{Rc, Weak},
};

use hyper::rt::Executor;
use tokio::task::JoinSet;

use super::{
    clock::Clock,
    watch::{Current, Watched, Watches},
};

/// The tasks of a worker, and their deadlines.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    running: RefCell<JoinSet<()>>,
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
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.running.borrow_mut().spawn_local(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.running.borrow().len()
    }

    /// Waits until one more has ended. A task that panicked has ended too: the panic was told where it happened.
    ///
    /// Cancel safety: dropped, no task is lost.
    pub(super) async fn one_ended(&self) {
        poll_fn(|cx| self.running.borrow_mut().poll_join_next(cx)).await;
    }

    /// Ends all that is left.
    pub(super) fn abort(&self) {
        self.running.borrow_mut().abort_all();
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
