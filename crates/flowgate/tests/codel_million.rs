//! CoDel at size: a million waiters in a backlogged line, and what a million lines leave behind. Run in release.
//!
//! Time is judged by growth only, best of several rounds, since the machine may be shared. Memory is counted by the allocator,
//! so these tests run one after the other.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use flowgate::{Gate, Pass, Reason, gate::Enter};
use flowgate_testkit::{Allocator, FakeClock, Memory};

#[global_allocator]
static ALLOCATOR: Allocator = Memory::COUNTED;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A long line may take so many times as long as ten of a tenth, one after the other. Linear is 1, and memory that no longer
/// fits into the processor's cache makes it 2; quadratic is 10.
const GROWTH: u32 = 4;

const MANY: usize = if cfg!(debug_assertions) { 10_000 } else { 1_000_000 };

fn poll(entry: &mut Enter<'_>) -> Option<Result<Pass, Reason>> {
    match Pin::new(entry).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer.map_err(|refusal| refusal.reason)),
        Poll::Pending => None,
    }
}

/// `count` wait in a backlogged lane: every second one gives up, of the others the newer half starts, newest first, and the
/// older half is late. How long that took.
fn fill_cancel_drain(gate: &Gate, clock: &FakeClock, count: usize) -> Duration {
    let mut line: Vec<Option<Enter<'_>>> = (0..count).map(|_| Some(gate.enter())).collect();
    let start = Instant::now();
    let mut pass = gate.try_enter().unwrap();
    let mut first = gate.enter();
    assert!(poll(&mut first).is_none());
    clock.advance(Duration::from_secs(1));
    for entry in line.iter_mut().flatten() {
        assert!(poll(entry).is_none());
    }
    // The lane is backlogged from here on: the first one's time is over just when those are in line.
    clock.advance(Duration::from_secs(1));
    assert_eq!(poll(&mut first).unwrap().unwrap_err(), Reason::QueueTimeout);
    for entry in line.iter_mut().step_by(2) {
        *entry = None;
    }
    for entry in line[count / 2..].iter_mut().rev().flatten() {
        drop(pass);
        pass = poll(entry).expect("handed over, newest first").unwrap();
    }
    clock.advance(Duration::from_secs(1));
    for entry in line[..count / 2].iter_mut().flatten() {
        assert_eq!(poll(entry).expect("late").unwrap_err(), Reason::QueueTimeout);
    }
    assert_eq!(gate.look().waiting, 0);
    start.elapsed()
}

#[test]
fn g4_one_million_waiters_join_cancel_start_and_are_refused_in_linear_time() {
    // Seen to fail: with `next_in` walking the row to its newest, a long line takes nine times as long as ten short ones.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = FakeClock::new();
    let two = Duration::from_secs(2);
    let gate = Gate::builder().max(1).codel(two, two).clock(clock.clone()).build().unwrap();
    // Side by side, and equally long if all is well: so whoever else uses the machine slows down both.
    let (mut tenths, mut whole) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        tenths = tenths.min((0..10).map(|_| fill_cancel_drain(&gate, &clock, MANY / 10)).sum());
        whole = whole.min(fill_cancel_drain(&gate, &clock, MANY));
    }
    assert!(whole <= tenths * GROWTH, "ten of {} took {tenths:?}, {MANY} took {whole:?}", MANY / 10);
}

#[test]
fn g4_lines_that_form_and_clear_within_an_interval_leave_nothing_behind() {
    // Seen to fail: with `Backlogs::remove` leaving the moment in `due`, 340 KB stay after ten thousand lines.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = FakeClock::new();
    let builder = Gate::builder().max(1).codel(Duration::from_millis(5), Duration::from_secs(3_600));
    let gate = builder.clock(clock.clone()).keyed().build().unwrap();
    let form_and_clear = |count: usize| {
        for n in 0..count {
            let key = format!("tenant-{}", n % 100);
            let pass = gate.try_enter_key(&key).unwrap();
            let mut waits = gate.enter_key(&key);
            assert!(poll(&mut waits).is_none());
            clock.advance(Duration::from_micros(1));
            drop((waits, pass));
        }
    };
    form_and_clear(1_000);
    let before = Memory::now().bytes;
    form_and_clear(MANY);
    let after = Memory::now().bytes;
    assert!(after <= before + 32 * 1024, "{before} bytes before, {after} after {MANY} lines");
    assert_eq!(gate.look().lanes, 0);
}
