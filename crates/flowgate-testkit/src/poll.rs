//! Polling by hand.
//!
//! Owns a waker that counts how often it was woken, so that a test can drive a future one poll at a time.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Counts how often it is woken.
#[derive(Debug, Default)]
pub struct CountingWaker {
    woken: AtomicUsize,
}

impl CountingWaker {
    /// A waker, and the counter behind it.
    pub fn new() -> (Waker, Arc<Self>) {
        let counter = Arc::new(CountingWaker::default());
        (Waker::from(Arc::clone(&counter)), counter)
    }

    /// How often it was woken.
    pub fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls once with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
