//! What the gate's events add up to.
//!
//! Owns the counts that a gate does not keep itself. It counts on the thread where things happen and never waits.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flowgate::gate::{Event, Listener, What};

#[derive(Debug, Default)]
pub(super) struct Tally {
    admitted: AtomicU64,
    out: AtomicU64,
    peak: AtomicU64,
}

/// A tally that listens.
pub(super) struct Ears(Arc<Tally>);

impl Tally {
    pub(super) fn ears(tally: &Arc<Self>) -> Ears {
        Ears(Arc::clone(tally))
    }

    /// How many passes were given.
    pub(super) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// How many passes were out at once at the most.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Listener for Ears {
    fn on_event(&self, event: &Event<'_>) {
        let Ears(tally) = self;
        match event.what {
            What::Acquired { .. } => {
                tally.admitted.fetch_add(1, Ordering::Relaxed);
                let out = tally.out.fetch_add(1, Ordering::Relaxed) + 1;
                tally.peak.fetch_max(out, Ordering::Relaxed);
            }
            What::Released { .. } => {
                tally.out.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn wants_times(&self) -> bool {
        false
    }
}
