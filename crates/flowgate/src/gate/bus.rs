//! Events on their way to listeners.
//!
//! Owns who listens. With nobody listening it costs one load of one flag. Listeners are called with no lock held; one that
//! panics is counted and otherwise ignored: no slot depends on it.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
    task::{Context, Poll, Waker},
};

use flowgate_core::{Event, Ident, Key, What};

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Hears what happens at a gate, on the thread where it happens: be quick, and do not wait.
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
    /// Something happened.
    fn on_event(&self, event: &Event<'_>);

    /// Whether [`What::Released`] should say how long the pass was held, which takes two looks at the clock per pass.
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

/// How many events a subscriber may lag behind before it loses the oldest.
const BACKLOG: usize = 1024;

pub(crate) struct Bus {
    is_on: AtomicBool,
    is_timed: AtomicBool,
    listeners: Box<[Box<dyn Listener>]>,
    has_subscribers: AtomicBool,
    subscribers: RwLock<Vec<Weak<Mailbox>>>,
    panics: AtomicU64,
}

impl Bus {
    pub(crate) fn new(listeners: Vec<Box<dyn Listener>>) -> Self {
        Bus {
            is_on: AtomicBool::new(!listeners.is_empty()),
            is_timed: AtomicBool::new(listeners.iter().any(|listener| listener.wants_times())),
            listeners: listeners.into(),
            has_subscribers: AtomicBool::new(false),
            subscribers: RwLock::default(),
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

    pub(crate) fn tell(&self, ident: &Arc<Ident>, key: Option<&Key>, what: What) {
        let event = Event { ident, key, what };
        for listener in &self.listeners {
            self.call(|| listener.on_event(&event));
        }
        if self.has_subscribers.load(Ordering::Relaxed) {
            self.post(ident, key, what);
        }
    }

    /// Calls code of others. If it panics, the panic hook has told of it already; here it is counted, for `look`.
    fn call(&self, code: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(code)).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline(never)]
    fn post(&self, ident: &Arc<Ident>, key: Option<&Key>, what: What) {
        let mut someone_left = false;
        for mailbox in self.subscribers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            match mailbox.upgrade() {
                // It wakes the subscriber, by a waker that is not ours.
                Some(mailbox) => {
                    self.call(|| mailbox.post(Notice { ident: Arc::clone(ident), key: key.cloned(), what }));
                }
                None => someone_left = true,
            }
        }
        if someone_left {
            self.change(|_| ());
        }
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let mailbox = Arc::new(Mailbox::default());
        self.change(|subscribers| subscribers.push(Arc::downgrade(&mailbox)));
        Subscription { mailbox }
    }

    /// Changes who has subscribed; those who left go first.
    fn change(&self, change: impl FnOnce(&mut Vec<Weak<Mailbox>>)) {
        let mut subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|known| known.strong_count() > 0);
        change(&mut subscribers);
        let has_subscribers = !subscribers.is_empty();
        let is_timed = has_subscribers || self.listeners.iter().any(|listener| listener.wants_times());
        self.has_subscribers.store(has_subscribers, Ordering::Relaxed);
        self.is_timed.store(is_timed, Ordering::Relaxed);
        self.is_on.store(has_subscribers || !self.listeners.is_empty(), Ordering::Relaxed);
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("listeners", &self.listeners.len()).finish_non_exhaustive()
    }
}

/// An [`Event`] to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// At which gate.
    pub ident: Arc<Ident>,
    /// In which lane, where the gate has keys.
    pub key: Option<Key>,
    /// What happened.
    pub what: What,
}

/// The events of a gate, from the moment of subscribing on. Holds the newest 1,024: one that lags further loses the oldest
/// and is told how many ([`Subscription::lost`]).
#[derive(Debug)]
pub struct Subscription {
    mailbox: Arc<Mailbox>,
}

#[derive(Debug, Default)]
struct Mailbox {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    notices: VecDeque<Notice>,
    lost: u64,
    waker: Option<Waker>,
}

impl Mailbox {
    fn post(&self, notice: Notice) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.notices.len() == BACKLOG {
            inside.notices.pop_front();
            inside.lost += 1;
        }
        inside.notices.push_back(notice);
        let waker = inside.waker.take();
        drop(inside);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Subscription {
    /// The next event, as soon as there is one.
    ///
    /// Cancel safety: dropped while waiting, it takes nothing.
    pub async fn next(&mut self) -> Notice {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<Notice> {
        self.inside().notices.pop_front()
    }

    /// How many events were lost because this subscription lagged.
    pub fn lost(&self) -> u64 {
        self.inside().lost
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Notice> {
        let mut inside = self.inside();
        match inside.notices.pop_front() {
            Some(notice) => Poll::Ready(notice),
            None => {
                inside.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.mailbox.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
