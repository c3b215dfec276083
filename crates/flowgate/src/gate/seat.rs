//! The seat of a waiter: where its fate is written, and read without a lock.
//!
//! Owns one small allocation for each wait, kept for a later wait of the thread. It is written once, under
//! the desk's lock, and read by the entrant whenever that is polled.

use std::{cell::RefCell, sync::Arc};

use flowgate_core::{RateState, Reason, Tick};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Seat {
    /// [`WAITING`], [`GRANTED`], or the reason's place beyond.
    verdict: AtomicU32,
    at: AtomicU64,
    spent: AtomicU64,
    in_use: AtomicU32,
    waiting: AtomicU32,
    /// Zero for none.
    max: AtomicU32,
}

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const REFUSED: u32 = 2;

/// What became of one who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Waiting,
    /// The slot is its own already; `spent` is the lane's rate right after.
    Granted {
        at: Tick,
        spent: RateState,
        in_use: u32,
    },
    /// Turned away, with what was seen then.
    Refused {
        reason: Reason,
        in_use: u32,
        waiting: u32,
        max: Option<u32>,
    },
}

impl Seat {
    fn new() -> Self {
        Seat {
            verdict: AtomicU32::new(WAITING),
            at: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            in_use: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            max: AtomicU32::new(0),
        }
    }

    /// Writes the fate down. Under the desk's lock, once.
    pub(crate) fn decide(&self, fate: Fate) {
        debug_assert_eq!(self.fate(), Fate::Waiting, "a fate is decided once");
        let verdict = match fate {
            Fate::Waiting => WAITING,
            Fate::Granted { at, spent, in_use } => {
                self.at.store(at.as_nanos(), Ordering::Relaxed);
                self.spent.store(spent.to_word(), Ordering::Relaxed);
                self.in_use.store(in_use, Ordering::Relaxed);
                GRANTED
            }
            Fate::Refused { reason, in_use, waiting, max } => {
                self.in_use.store(in_use, Ordering::Relaxed);
                self.waiting.store(waiting, Ordering::Relaxed);
                self.max.store(max.unwrap_or(0), Ordering::Relaxed);
                REFUSED + reason.index() as u32
            }
        };
        self.verdict.store(verdict, Ordering::Release);
    }

    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        let in_use = || self.in_use.load(Ordering::Relaxed);
        match self.verdict.load(Ordering::Acquire) {
            WAITING => Fate::Waiting,
            GRANTED => Fate::Granted {
                at: Tick::from_nanos(self.at.load(Ordering::Relaxed)),
                spent: RateState::from_word(self.spent.load(Ordering::Relaxed)),
                in_use: in_use(),
            },
            refused => Fate::Refused {
                reason: Reason::ALL[(refused - REFUSED) as usize],
                in_use: in_use(),
                waiting: self.waiting.load(Ordering::Relaxed),
                max: Some(self.max.load(Ordering::Relaxed)).filter(|&max| max > 0),
            },
        }
    }
}

/// How many seats a thread keeps to use again.
const SPARES: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<Arc<Seat>>> = const { RefCell::new(Vec::new()) };
}

/// A seat for one who begins to wait.
pub(crate) fn take() -> Arc<Seat> {
    // Loom's atomics do not outlive one run of a model.
    let spare =
        if cfg!(loom) { None } else { SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten() };
    match spare {
        // Nobody else knows it, so nobody can come to know it.
        Some(seat) if Arc::strong_count(&seat) == 1 => {
            seat.verdict.store(WAITING, Ordering::Relaxed);
            seat
        }
        _ => Arc::new(Seat::new()),
    }
}

/// The wait is over.
pub(crate) fn put(seat: Arc<Seat>) {
    if !cfg!(loom) {
        // While the thread ends there is nowhere to keep it; then it is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(seat);
            }
        });
    }
}
