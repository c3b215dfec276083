//! Loom models of the slots, the line and the express lane: every interleaving, up to some preemptions.
//!
//! `cargo xtask loom` runs them. Each model is a handful of steps on two or three threads; what must hold is asked once all
//! are done, and the bound at each moment. A future is polled by hand: one that waits must have been woken before it is
//! polled again, so a lost wake-up shows as such and not as a hang. Time stands still unless a model moves it.

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use flowgate::{Gate, KeyedGate, Limits, Pass, Reason, Refusal, gate::Drained};
use flowgate_testkit::{Driven, FakeClock};
use loom::thread;

type Answer = Result<Pass, Refusal>;
type Entrant = Driven<'static, Answer>;

/// Runs one model, with as many preemptions as `LOOM_MAX_PREEMPTIONS` says, or 3.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(run);
}

fn gate(max: u32) -> Gate {
    Gate::builder().max(max).clock(FakeClock::new()).build().unwrap()
}

fn keyed(max: u32, max_keys: u32) -> KeyedGate {
    Gate::builder().max(max).clock(FakeClock::new()).keyed().max_keys(max_keys).build().unwrap()
}

fn limits(max: u32) -> Limits {
    Limits::builder().max(max).build().unwrap()
}

/// One who will ask to enter, with a handle of its own on the gate.
fn entrant(gate: &Gate) -> Entrant {
    let gate = gate.clone();
    Driven::new(async move { gate.enter().await })
}

/// The same, and it was asked and has to wait.
#[track_caller]
fn waiting(gate: &Gate) -> Entrant {
    let gate = gate.clone();
    Driven::pending(async move { gate.enter().await })
}

fn entrant_of(gate: &KeyedGate, key: &'static str) -> Entrant {
    let gate = gate.clone();
    Driven::new(async move { gate.enter_key(key).await })
}

/// Its answer: the one of the poll before, or what it was woken for.
#[track_caller]
fn answer(seen: Option<Answer>, mut entrant: Entrant) -> Answer {
    seen.unwrap_or_else(|| entrant.ready())
}

/// Does something on another thread of the model.
fn aside<T: 'static>(gate: &Gate, work: impl FnOnce(&Gate) -> T + 'static) -> thread::JoinHandle<T> {
    let gate = gate.clone();
    thread::spawn(move || work(&gate))
}

/// So many slots are free, and nobody is in or in line.
#[track_caller]
fn is_at_rest(gate: &Gate, max: u32) {
    let look = gate.look();
    assert_eq!((look.in_use, look.waiting), (0, 0));
    let passes: Vec<Pass> = (0..=max).map_while(|_| gate.try_enter().ok()).collect();
    assert_eq!(passes.len(), max as usize, "slots were lost or made");
}

/// Where the work is done: never by more than `max` at once.
struct Room {
    max: u32,
    /// Not loom's: a thread is switched only at loom's operations, so this counts at the very moment of the entry.
    inside: AtomicU32,
    /// Read and written by steps that order nothing themselves: with a max of one, the gate has to be a lock around them.
    done: loom::sync::atomic::AtomicU32,
}

impl Room {
    fn new(max: u32) -> Arc<Self> {
        Arc::new(Room { max, inside: AtomicU32::new(0), done: loom::sync::atomic::AtomicU32::new(0) })
    }

    fn go_in(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(inside <= self.max, "{inside} are in at once");
    }

    fn go_out(&self, pass: Pass) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        drop(pass);
    }

    fn work(&self, pass: Pass) {
        self.go_in();
        self.note();
        self.go_out(pass);
    }

    fn note(&self) {
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn done(&self) -> u32 {
        self.done.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn g1_one_slot_on_the_express_lane_is_a_lock() {
    model(|| {
        let (gate, room) = (gate(1), Room::new(1));
        let other = aside(&gate, {
            let room = Arc::clone(&room);
            move |gate| gate.try_enter().map(|pass| room.work(pass)).is_ok()
        });
        let looker = aside(&gate, |gate| gate.look());
        let mine = gate.try_enter().map(|pass| room.work(pass)).is_ok();
        let entries = u32::from(mine) + u32::from(other.join().unwrap());
        looker.join().unwrap();
        assert!(entries > 0, "the first to ask is let in");
        assert_eq!(room.done(), entries, "each saw what the one before had done");
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g2_a_slot_given_back_while_one_joins_is_handed_over() {
    model(|| {
        let (gate, room) = (gate(1), Room::new(1));
        let pass = gate.try_enter().unwrap();
        room.go_in();
        let holder = thread::spawn({
            let room = Arc::clone(&room);
            move || {
                room.note();
                room.go_out(pass);
            }
        });
        let mut entrant = entrant(&gate);
        // The second look is at the seat alone, without a lock.
        let mut seen = entrant.poll().or_else(|| entrant.poll());
        if seen.is_none() {
            holder.join().unwrap();
            seen = Some(entrant.ready());
        }
        room.work(seen.unwrap().unwrap());
        assert_eq!(room.done(), 2, "who is handed a slot sees what was done under it");
        is_at_rest(&gate, 1);
    });
}
