//! What the models are made of: gates on a clock that stands still, entrants polled by hand, and the room where work is done.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Wake,
    time::Duration,
};

use flowgate::{Gate, KeyedGate, Limits, Pass, Refusal};
use flowgate_testkit::{Driven, FakeClock};
use loom::thread;

pub(crate) type Answer = Result<Pass, Refusal>;
pub(crate) type Entrant = Driven<'static, Answer>;

/// Runs one model, with as many preemptions as `LOOM_MAX_PREEMPTIONS` says, or 3.
pub(crate) fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(run);
}

pub(crate) fn gate(max: u32) -> Gate {
    Gate::builder().max(max).clock(FakeClock::new()).build().unwrap()
}

/// One slot, and nobody waits longer than a second.
pub(crate) fn timed(clock: &Arc<FakeClock>) -> Gate {
    let timeout = Duration::from_secs(1);
    Gate::builder().max(1).timeout(timeout).clock(Arc::clone(clock) as _).build().unwrap()
}

pub(crate) fn keyed(max: u32, max_keys: u32) -> KeyedGate {
    Gate::builder().max(max).clock(FakeClock::new()).keyed().max_keys(max_keys).build().unwrap()
}

pub(crate) fn limits(max: u32) -> Limits {
    Limits::builder().max(max).build().unwrap()
}

/// One who will ask to enter, with a handle of its own on the gate.
pub(crate) fn entrant(gate: &Gate) -> Entrant {
    let gate = gate.clone();
    Driven::new(async move { gate.enter().await })
}

/// The same, and it was asked and has to wait.
#[track_caller]
pub(crate) fn waiting(gate: &Gate) -> Entrant {
    let gate = gate.clone();
    Driven::pending(async move { gate.enter().await })
}

/// Its answer: the one of the poll before, or what it was woken for.
#[track_caller]
pub(crate) fn answer(seen: Option<Answer>, mut entrant: Entrant) -> Answer {
    seen.unwrap_or_else(|| entrant.ready())
}

/// Does something on another thread of the model.
pub(crate) fn aside<T: 'static>(
    gate: &Gate,
    work: impl FnOnce(&Gate) -> T + 'static,
) -> thread::JoinHandle<T> {
    let gate = gate.clone();
    thread::spawn(move || work(&gate))
}

/// So many slots are free, and nobody is in or in line.
#[track_caller]
pub(crate) fn is_at_rest(gate: &Gate, max: u32) {
    let look = gate.look();
    assert_eq!((look.in_use, look.waiting), (0, 0));
    let passes: Vec<Pass> = (0..=max).map_while(|_| gate.try_enter().ok()).collect();
    assert_eq!(passes.len(), max as usize, "slots were lost or made");
}

/// Where the work is done: never by more than `max` at once.
pub(crate) struct Room {
    max: u32,
    /// Not loom's: a thread is switched only at loom's operations, so this counts at the very moment of the entry.
    pub(crate) inside: AtomicU32,
    /// Read and written by steps that order nothing themselves: with a max of one, the gate has to be a lock around them.
    done: loom::sync::atomic::AtomicU32,
}

impl Room {
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Room { max, inside: AtomicU32::new(0), done: loom::sync::atomic::AtomicU32::new(0) })
    }

    pub(crate) fn go_in(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(inside <= self.max, "{inside} are in at once");
    }

    pub(crate) fn go_out(&self, pass: Pass) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        drop(pass);
    }

    pub(crate) fn work(&self, pass: Pass) {
        self.go_in();
        self.note();
        self.go_out(pass);
    }

    pub(crate) fn note(&self) {
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn done(&self) -> u32 {
        self.done.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Bell(pub(crate) AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
