//! Events of a context on their way to listeners.
//!
//! Owns who listens to the routes of one context. With nobody listening it costs one load of one flag. A listener that panics
//! is ignored: no exchange depends on it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock, Weak},
};

use super::event::Event;
use crate::{
    mailbox::{Mailbox, Subscription, close_all},
    sync::{AtomicBool, Ordering},
};

/// Hears events on the thread where they happen: be quick, and do not wait.
pub(crate) type Listener = Box<dyn Fn(&Event) + Send + Sync>;

pub(crate) struct Bus {
    is_on: AtomicBool,
    listeners: Box<[Listener]>,
    /// Shared, so that they are told, and woken, with no lock held.
    subscribers: RwLock<Arc<[Weak<Mailbox<Event>>]>>,
}

impl Bus {
    pub(crate) fn new(listeners: Vec<Listener>) -> Self {
        let is_on = AtomicBool::new(!listeners.is_empty());
        Bus { is_on, listeners: listeners.into(), subscribers: RwLock::new(Arc::new([])) }
    }

    /// Whether anybody listens, or ever has.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn subscribe(&self) -> Subscription<Event> {
        let subscription = Subscription::default();
        let mut subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        let known = subscribers.iter().filter(|known| known.strong_count() > 0).cloned();
        *subscribers = known.chain([subscription.address()]).collect();
        drop(subscribers);
        self.is_on.store(true, Ordering::Relaxed);
        subscription
    }

    pub(crate) fn tell(&self, event: &Event) {
        for listener in &self.listeners {
            // The panic hook has told of it already.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        }
        let subscribers = Arc::clone(&self.subscribers.read().unwrap_or_else(PoisonError::into_inner));
        for mailbox in subscribers.iter() {
            if let Some(mailbox) = mailbox.upgrade() {
                // It wakes the subscriber, by a waker that is not ours.
                let _ = catch_unwind(AssertUnwindSafe(|| mailbox.post(event.clone())));
            }
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        close_all(self.subscribers.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}
