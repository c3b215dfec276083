//! Events kept for a reader that takes them later.
//!
//! Owns a bounded box of events and the reader that empties it. It never makes the sender wait: a reader that
//! lags loses the oldest.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use crate::gate::{Notice, discard, wake};

/// How many events a subscriber may lag behind before it loses the oldest.
const BACKLOG: usize = 1024;

/// Receives events from the moment of subscribing on. It keeps the newest 1,024; a reader that falls further behind
/// loses the oldest, and [`Subscription::lost`] counts them.
#[derive(Debug)]
pub struct Subscription<T = Notice> {
    mailbox: Arc<Mailbox<T>>,
}

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inside: Mutex<Inside<T>>,
}

#[derive(Debug)]
struct Inside<T> {
    notices: VecDeque<T>,
    lost: u64,
    /// Nothing more will come.
    is_over: bool,
    waker: Option<Waker>,
}

impl<T> Inside<T> {
    fn take(&mut self) -> Poll<Option<T>> {
        match self.notices.pop_front() {
            None if !self.is_over => Poll::Pending,
            notice => Poll::Ready(notice),
        }
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn post(&self, notice: T) {
        let mut inside = self.lock();
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

    fn close(&self) {
        let mut inside = self.lock();
        inside.is_over = true;
        let waker = inside.waker.take();
        drop(inside);
        waker.into_iter().for_each(wake);
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever told of things is gone: all who listen are told that nothing more will come.
pub(crate) fn close_all<T>(mailboxes: &[Weak<Mailbox<T>>]) {
    mailboxes.iter().filter_map(Weak::upgrade).for_each(|mailbox| mailbox.close());
}

impl<T> Default for Subscription<T> {
    fn default() -> Self {
        let inside = Inside { notices: VecDeque::new(), lost: 0, is_over: false, waker: None };
        Subscription { mailbox: Arc::new(Mailbox { inside: Mutex::new(inside) }) }
    }
}

impl<T> Subscription<T> {
    /// Where to post.
    pub(crate) fn address(&self) -> Weak<Mailbox<T>> {
        Arc::downgrade(&self.mailbox)
    }

    /// Waits for the next event. Returns `None` once what it listens to is gone and every event has been read.
    ///
    /// Cancel safety: dropped while waiting, it takes nothing.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<T> {
        self.mailbox.lock().notices.pop_front()
    }

    /// Returns how many events were lost because this subscription fell behind.
    pub fn lost(&self) -> u64 {
        self.mailbox.lock().lost
    }

    fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let here = self.mailbox.lock().take();
        if here.is_ready() {
            return here;
        }
        // A waker is code of others, and its task may go with it: it is made before the lock is taken, and what is left of it,
        // or of the one before, is dropped when that is gone.
        let mut waker = Some(cx.waker().clone());
        let mut inside = self.mailbox.lock();
        let here = inside.take();
        if here.is_pending() {
            mem::swap(&mut inside.waker, &mut waker);
        }
        drop(inside);
        waker.into_iter().for_each(discard);
        here
    }
}
