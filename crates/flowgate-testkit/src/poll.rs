//! Polling by hand.
//!
//! Owns a future that a test drives one poll at a time, and counts how often it was woken.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

/// A future under a test's control: polled when the test says so, dropped when the test drops it.
pub struct Driven<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    waker: Waker,
    counter: Arc<Counter>,
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'a, T> Driven<'a, T> {
    /// Takes control of a future that was not polled yet.
    pub fn new(future: impl Future<Output = T> + 'a) -> Self {
        let counter = Arc::new(Counter::default());
        Driven { future: Box::pin(future), waker: Waker::from(Arc::clone(&counter)), counter }
    }

    /// Takes control, and polls once; it must not be ready.
    #[track_caller]
    pub fn pending(future: impl Future<Output = T> + 'a) -> Self {
        let mut driven = Driven::new(future);
        assert!(driven.poll().is_none(), "it was to wait, and was ready at once");
        driven
    }

    /// Polls once.
    pub fn poll(&mut self) -> Option<T> {
        match self.future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Polls once with another waker than before.
    pub fn poll_with(&mut self, waker: &Waker) -> Option<T> {
        match self.future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Polls once; it must be ready, and must have been woken before.
    #[track_caller]
    pub fn ready(&mut self) -> T {
        assert!(self.woken() > 0, "it was to be woken, and was not");
        self.poll().expect("it was woken, and was not ready")
    }

    /// How often it was woken.
    pub fn woken(&self) -> usize {
        self.counter.0.load(Ordering::SeqCst)
    }
}

/// A waker that asks something then and there, as one does that runs its task in place; and for each time that it woke, whether
/// there was an answer. It asks by another thread, so that one that has to wait for this one is found out.
pub fn asking(ask: impl Fn() + Clone + Send + Sync + 'static) -> (Waker, mpsc::Receiver<bool>) {
    let (has_answer, answers) = mpsc::channel();
    (Waker::from(Arc::new(Asking { ask, has_answer })), answers)
}

struct Asking<F> {
    ask: F,
    has_answer: mpsc::Sender<bool>,
}

impl<F: Fn() + Clone + Send + Sync + 'static> Wake for Asking<F> {
    fn wake(self: Arc<Self>) {
        let (says, heard) = mpsc::channel();
        let ask = self.ask.clone();
        thread::spawn(move || {
            ask();
            says.send(())
        });
        let _ = self.has_answer.send(heard.recv_timeout(Duration::from_secs(10)).is_ok());
    }
}
