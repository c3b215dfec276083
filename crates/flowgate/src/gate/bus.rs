//! Events on their way to listeners.
//!
//! Owns the listeners. With nobody listening it costs one load of one flag. Listeners are called with no lock
//! held; a panic of a listener is counted and otherwise ignored: no slot depends on it.

use std::{
    any::Any,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
};

use flowgate_core::{Event, Ident, Key, What};

use crate::{
    mailbox::{Mailbox, Subscription, close_all},
    sync::{AtomicBool, AtomicU64, Ordering},
};

/// Is called for each event of a gate, on the thread where it happens. Be quick, and do not block.
///
/// ```
/// use flowgate::gate::{Event, Gate, Listener, What};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Refused(AtomicU64);
///
/// impl Listener for Refused {
///     fn on_event(&self, event: &Event<'_>) {
///         if let What::Rejected { .. } = event.what {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
///
///     fn wants_times(&self) -> bool {
///         false // counting needs no clock
///     }
/// }
///
/// let gate = Gate::builder().max(5).reject().listener(Refused::default()).build()?;
/// # Ok::<(), flowgate::OptionError>(())
/// ```
pub trait Listener: Send + Sync + 'static {
    /// Called when something has happened.
    fn on_event(&self, event: &Event<'_>);

    /// Whether [`What::Released`] should say how long the pass was held. That takes two looks at the clock for each
    /// pass.
    fn wants_times(&self) -> bool {
        true
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Listener for F {
    fn on_event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// Shared, so that whoever built the gate can ask the listener too.
impl<L: Listener + ?Sized> Listener for Arc<L> {
    fn on_event(&self, event: &Event<'_>) {
        L::on_event(self, event);
    }

    fn wants_times(&self) -> bool {
        L::wants_times(self)
    }
}

pub(crate) struct Bus {
    is_on: AtomicBool,
    is_timed: AtomicBool,
    listeners: Box<[Box<dyn Listener>]>,
    /// The surface that the gate is a part of, once somebody listens there.
    relay: OnceLock<Box<dyn Listener>>,
    /// Whether anybody beside the listeners wants to know.
    has_others: AtomicBool,
    /// Shared, so that they are told, and woken, with no lock held.
    subscribers: RwLock<Arc<[Weak<Mailbox<Notice>>]>>,
    panics: AtomicU64,
}

impl Bus {
    pub(crate) fn new(listeners: Vec<Box<dyn Listener>>) -> Self {
        Bus {
            is_on: AtomicBool::new(!listeners.is_empty()),
            is_timed: AtomicBool::new(listeners.iter().any(|listener| listener.wants_times())),
            listeners: listeners.into(),
            relay: OnceLock::new(),
            has_others: AtomicBool::new(false),
            subscribers: RwLock::new(Arc::new([])),
            panics: AtomicU64::new(0),
        }
    }

    /// Whether anybody listens.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether anybody who listens wants to know how long passes are held.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed.load(Ordering::Relaxed)
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Whatever those do who are told, it comes back: a slot may be on its way. `ident` is the event's own, for those
    /// who keep it.
    pub(crate) fn tell(&self, ident: &Arc<Ident>, event: &Event<'_>) {
        for listener in &self.listeners {
            self.call(|| listener.on_event(event));
        }
        if self.has_others.load(Ordering::Relaxed) {
            self.tell_others(ident, event);
        }
    }

    /// Calls code of others. If it panics, the panic hook has told of it already; here it is counted, for `look`.
    #[inline]
    fn call(&self, code: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
            self.count_panic(panic);
        }
    }

    #[inline(never)]
    fn count_panic(&self, panic: Box<dyn Any + Send>) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        // That is theirs, too. What it panics with in turn is not looked at any more.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            mem::forget(panic);
        }
    }

    #[inline(never)]
    fn tell_others(&self, ident: &Arc<Ident>, event: &Event<'_>) {
        if let Some(relay) = self.relay.get() {
            self.call(|| relay.on_event(event));
        }
        let mut someone_left = false;
        let subscribers = Arc::clone(&self.subscribers.read().unwrap_or_else(PoisonError::into_inner));
        for mailbox in subscribers.iter() {
            match mailbox.upgrade() {
                // It wakes the subscriber, by a waker that is not ours.
                Some(mailbox) => {
                    let notice =
                        || Notice { ident: Arc::clone(ident), key: event.key.cloned(), what: event.what };
                    // With its last handle, which is dropped there.
                    self.call(move || mailbox.post(notice()));
                }
                None => someone_left = true,
            }
        }
        if someone_left {
            // It asks the listeners what they want.
            self.call(|| self.change(|_| ()));
        }
    }

    pub(crate) fn subscribe(&self) -> Subscription<Notice> {
        let subscription = Subscription::default();
        self.change(|subscribers| subscribers.push(subscription.address()));
        subscription
    }

    /// From now on this one hears everything as well. The first one stays.
    #[cfg(feature = "route")]
    pub(crate) fn relay(&self, listener: Box<dyn Listener>) {
        if self.relay.set(listener).is_ok() {
            self.change(|_| ());
        }
    }

    fn all_listeners(&self) -> impl Iterator<Item = &dyn Listener> {
        self.listeners.iter().chain(self.relay.get()).map(|listener| &**listener)
    }

    /// Changes who has subscribed; those who left go first.
    fn change(&self, change: impl FnOnce(&mut Vec<Weak<Mailbox<Notice>>>)) {
        let mut subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        let mut known: Vec<_> =
            subscribers.iter().filter(|known| known.strong_count() > 0).cloned().collect();
        change(&mut known);
        let has_subscribers = !known.is_empty();
        *subscribers = known.into();
        self.has_others.store(has_subscribers || self.relay.get().is_some(), Ordering::Relaxed);
        self.is_on.store(has_subscribers || self.all_listeners().next().is_some(), Ordering::Relaxed);
        if has_subscribers {
            self.is_timed.store(true, Ordering::Relaxed);
        }
        drop(subscribers);
        if !has_subscribers {
            self.ask_for_times();
        }
    }

    /// Asks the listeners whether they want times, which is code of others: with no lock held.
    fn ask_for_times(&self) {
        let asked = self.all_listeners().count();
        let is_timed = self.all_listeners().take(asked).any(Listener::wants_times);
        let subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever came meanwhile has its own say.
        if subscribers.is_empty() && self.all_listeners().count() == asked {
            self.is_timed.store(is_timed, Ordering::Relaxed);
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        close_all(self.subscribers.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("listeners", &self.listeners.len()).finish_non_exhaustive()
    }
}

/// An [`Event`] that can be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The gate it happened at.
    pub ident: Arc<Ident>,
    /// The lane, if the gate has keys.
    pub key: Option<Key>,
    /// What happened.
    pub what: What,
}
