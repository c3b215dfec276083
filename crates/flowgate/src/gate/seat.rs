//! The seat of a waiter: where its fate is written, and read without a lock.
//!
//! Owns one small allocation for each wait, kept for a later wait of the thread. It is written once, by whoever took the
//! waiter out of the line, and read by the entrant whenever that is polled.

use std::{cell::RefCell, sync::Arc};

use flowgate_core::{RateState, Reason, Tick};

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Three words: with a million in line, what each of them takes of memory is most of what it costs.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Seat {
    /// [`WAITING`], [`GRANTED`], or the reason's place beyond.
    verdict: AtomicU32,
    in_use: AtomicU32,
    /// When it was granted; or how many waited when it was refused.
    at_or_waiting: AtomicU64,
    /// What the rate had spent then; or `max`, zero for none.
    spent_or_max: AtomicU64,
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

impl Fate {
    /// Of one to whom a slot was handed over where there is no rate and nobody asks for the time.
    pub(crate) fn handed(in_use: u32) -> Self {
        Fate::Granted { at: Tick::ZERO, spent: RateState::default(), in_use }
    }
}

impl Seat {
    fn new() -> Self {
        Seat {
            verdict: AtomicU32::new(WAITING),
            in_use: AtomicU32::new(0),
            at_or_waiting: AtomicU64::new(0),
            spent_or_max: AtomicU64::new(0),
        }
    }

    /// Writes the fate down, once: under the desk's lock, or right after it was let go.
    pub(crate) fn decide(&self, fate: Fate) {
        debug_assert_eq!(self.fate(), Fate::Waiting, "a fate is decided once");
        let (verdict, in_use, at_or_waiting, spent_or_max) = match fate {
            Fate::Waiting => return,
            Fate::Granted { at, spent, in_use } => (GRANTED, in_use, at.as_nanos(), spent.to_word()),
            Fate::Refused { reason, in_use, waiting, max } => {
                (REFUSED + reason.index() as u32, in_use, waiting.into(), max.unwrap_or(0).into())
            }
        };
        self.in_use.store(in_use, Ordering::Relaxed);
        self.at_or_waiting.store(at_or_waiting, Ordering::Relaxed);
        self.spent_or_max.store(spent_or_max, Ordering::Relaxed);
        self.verdict.store(verdict, Ordering::Release);
    }

    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        let verdict = self.verdict.load(Ordering::Acquire);
        if verdict == WAITING {
            return Fate::Waiting;
        }
        let in_use = self.in_use.load(Ordering::Relaxed);
        let at_or_waiting = self.at_or_waiting.load(Ordering::Relaxed);
        let spent_or_max = self.spent_or_max.load(Ordering::Relaxed);
        if verdict == GRANTED {
            let (at, spent) = (Tick::from_nanos(at_or_waiting), RateState::from_word(spent_or_max));
            return Fate::Granted { at, spent, in_use };
        }
        let (waiting, max) = (at_or_waiting as u32, Some(spent_or_max as u32).filter(|&max| max > 0));
        Fate::Refused { reason: Reason::ALL[(verdict - REFUSED) as usize], in_use, waiting, max }
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
        // Nobody else knows it, so nobody can come to know it. Whoever decided it last may have done so after the entrant had
        // learnt of it from the desk: that is over too.
        Some(seat) if Arc::strong_count(&seat) == 1 => {
            fence(Ordering::Acquire);
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
