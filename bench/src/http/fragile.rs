//! A service that bears only so many requests at once.
//!
//! Up to [`SLOTS`] in flight each takes the same time; with more, all that come take longer, and the more there are the
//! less gets done. Owns the timer as well: tokio's has whole milliseconds, which is too coarse for what is measured.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{tools, upstream::serve_with};

/// How many requests at once it bears.
pub(super) const SLOTS: u32 = 32;
/// With so many more in flight, a request takes twice as long.
const DOUBLES: u32 = 8;

/// Where it says how many requests there were at once, at the most, since it was last asked.
pub(super) const MOST: &str = "/v1/most";

pub(super) fn serve(port: u16, service: Duration) -> io::Result<()> {
    tools::go_first();
    let timer = Timer::start();
    let in_flight = Arc::new(AtomicU32::new(0));
    let most = AtomicU32::new(0);
    serve_with(port, move |request| {
        let work = (request.uri().path() != MOST).then(|| {
            let here = Here::new(&in_flight);
            most.fetch_max(here.count, Ordering::Relaxed);
            let excess = here.count.saturating_sub(SLOTS);
            (timer.after(service + service * excess / DOUBLES), here)
        });
        let said = work.is_none().then(|| most.swap(0, Ordering::Relaxed).to_string());
        async move {
            if let Some((over, here)) = work {
                // The timer goes with the process; whoever is dropped here was hung up on.
                let _ = over.await;
                drop(here);
            }
            said.map_or(Bytes::from_static(b"done"), Bytes::from)
        }
    })
}

/// One request in flight.
struct Here {
    in_flight: Arc<AtomicU32>,
    /// How many there are with this one.
    count: u32,
}

impl Here {
    fn new(in_flight: &Arc<AtomicU32>) -> Self {
        let count = in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        Here { in_flight: Arc::clone(in_flight), count }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who is to be told when, by moment and number.
type Due = BTreeMap<(Instant, u64), oneshot::Sender<()>>;

/// Tells when a time is over, to some 50 microseconds.
struct Timer {
    shared: Arc<(Mutex<Due>, Condvar)>,
    number: AtomicU32,
}

impl Timer {
    fn start() -> Self {
        let shared = Arc::new((Mutex::new(Due::new()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        thread::spawn(move || {
            tools::go_first();
            ring(&theirs.0, &theirs.1);
        });
        Timer { shared, number: AtomicU32::new(0) }
    }

    fn after(&self, time: Duration) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let key = (Instant::now() + time, u64::from(self.number.fetch_add(1, Ordering::Relaxed)));
        let mut due = lock(&self.shared.0);
        due.insert(key, sender);
        if due.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.shared.1.notify_one();
        }
        receiver
    }
}

fn ring(due: &Mutex<Due>, changed: &Condvar) {
    let mut due = lock(due);
    loop {
        let now = Instant::now();
        while let Some(first) = due.first_entry().filter(|first| first.key().0 <= now) {
            // Whoever has gone does not hear it.
            let _ = first.remove().send(());
        }
        due = match due.first_key_value().map(|((at, _), _)| *at - now) {
            Some(wait) => changed.wait_timeout(due, wait).unwrap_or_else(PoisonError::into_inner).0,
            None => changed.wait(due).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

fn lock(due: &Mutex<Due>) -> MutexGuard<'_, Due> {
    due.lock().unwrap_or_else(PoisonError::into_inner)
}
