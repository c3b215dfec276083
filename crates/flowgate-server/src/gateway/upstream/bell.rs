//! Who is woken for a line.
//!
//! Owns one waker between the line and the task that polls it. The task reads a body that the line fills: asking for the next
//! piece wakes the line, which is the task itself. Where it is about to poll the line anyway it mutes the bell, and is spared
//! a turn that would find nothing to do.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

#[derive(Debug)]
pub(super) struct Bell {
    rings: Arc<Rings>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Rings {
    task: Mutex<Option<Waker>>,
    is_muted: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> Self {
        let rings = Arc::new(Rings::default());
        Bell { waker: Waker::from(Arc::clone(&rings)), rings }
    }

    /// From now on this task is woken; what the line is polled with.
    pub(super) fn for_task(&self, task: &Waker) -> &Waker {
        let mut known = self.rings.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
        &self.waker
    }

    /// Does something without the task being woken for it.
    pub(super) fn muted<T>(&self, quietly: impl FnOnce() -> T) -> T {
        self.rings.is_muted.store(true, Ordering::Relaxed);
        let done = quietly();
        self.rings.is_muted.store(false, Ordering::Relaxed);
        done
    }
}

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_muted.load(Ordering::Relaxed)
            && let Some(task) = &*self.task.lock().unwrap_or_else(PoisonError::into_inner)
        {
            task.wake_by_ref();
        }
    }
}
