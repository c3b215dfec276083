//! G4 and G7 at size: a million waiters, a million keys, and what is left of them. Run in release (`./test` does).
//!
//! Time is judged by growth only, and by what the processor spent on it, since the machine may be shared. Memory is counted by
//! the allocator, so these tests run one after the other.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    pin::{Pin, pin},
    sync::Mutex,
    task::{Context, Waker},
    time::Duration,
};

use flowgate::{Gate, Limits, Pass, Reason, gate::Enter};
use flowgate_testkit::{Allocator, FakeClock, Memory, cpu_time};

#[global_allocator]
static ALLOCATOR: Allocator = Memory::COUNTED;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Seats kept for later waits, a slab's and a table's smallest size: what may stay, whatever the number of waiters.
const SMALL_CHANGE: usize = 32 * 1024;

/// As many waiters at once may take so many times as long as they do in ten parts. Linear is 1 and measured as such
/// (`cargo xtask bench gates` has the goal of 1.2); quadratic is 10. The room between is for caches that others use too.
const GROWTH: f64 = 2.5;

/// In debug builds the same with fewer, so that `cargo test` stays quick.
const MANY: usize = if cfg!(debug_assertions) { 10_000 } else { 1_000_000 };

fn poll(entry: &mut Enter<'_>) -> Option<Pass> {
    match Pin::new(entry).poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(answer) => Some(answer.unwrap()),
        std::task::Poll::Pending => None,
    }
}

/// How many times as long `work` takes with so many at once as with a tenth of them ten times: of each the least of a few
/// rounds, for a host that takes the processor away is counted as well, and only adds.
fn growth(count: usize, work: impl Fn(usize) -> Duration) -> f64 {
    let of = |parts: usize| (0..parts).map(|_| work(count / parts)).sum::<Duration>();
    let rounds = [(); 5].map(|()| (of(10), of(1)));
    let (tenths, whole) = (rounds.map(|(tenths, _)| tenths), rounds.map(|(_, whole)| whole));
    let (tenths, whole) = (tenths.into_iter().min().unwrap(), whole.into_iter().min().unwrap());
    whole.as_secs_f64() / tenths.as_secs_f64()
}

/// `count` wait, every second one gives up, the others start in order. How long that took.
fn fill_cancel_drain(gate: &Gate, count: usize) -> Duration {
    let mut line: Vec<Option<Enter<'_>>> = (0..count).map(|_| Some(gate.enter())).collect();
    let start = cpu_time();
    let mut pass = gate.try_enter().unwrap();
    for entry in line.iter_mut().flatten() {
        assert!(poll(entry).is_none());
    }
    assert_eq!(gate.look().waiting, count as u64);
    for entry in line.iter_mut().step_by(2) {
        *entry = None;
    }
    for entry in line.iter_mut().flatten() {
        drop(pass);
        pass = poll(entry).expect("handed over in order");
    }
    drop(pass);
    cpu_time() - start
}

#[test]
fn g4_one_million_waiters_join_cancel_and_drain_in_linear_time() {
    // Seen to fail: with `Line::part` walking the row to its waiter, the waiters at once take five times as long as in parts.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().max(1).build().unwrap();
    let growth = growth(MANY, |count| fill_cancel_drain(&gate, count));
    assert!(growth <= GROWTH, "{MANY} waiters took {growth} times as long at once as in ten parts");
}

/// As many, and behind them as many entries of one piece of work that holds a slot itself. How long that took.
fn with_holders(gate: &Gate, count: usize) -> Duration {
    let start = cpu_time();
    let mut pass = gate.try_enter().unwrap();
    let mut work = pin!(gate.run(async {
        tokio::task::yield_now().await;
        let mut own: Vec<Option<Enter<'_>>> = (0..count).map(|_| Some(gate.enter())).collect();
        own.iter_mut().flatten().for_each(|entry| assert!(poll(entry).is_none()));
        tokio::task::yield_now().await;
        own.iter_mut().step_by(2).for_each(|entry| *entry = None);
        own.iter_mut().flatten().for_each(|entry| drop(poll(entry).expect("handed over in order")));
    }));
    let mut go_on = || work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!go_on(), "it holds a slot");
    let mut line: Vec<Option<Enter<'_>>> = (0..count).map(|_| Some(gate.enter())).collect();
    line.iter_mut().flatten().for_each(|entry| assert!(poll(entry).is_none()));
    assert!(!go_on(), "its own stand behind them");
    assert_eq!(gate.look().waiting, 2 * count as u64);
    line.iter_mut().step_by(2).for_each(|entry| *entry = None);
    for entry in line.iter_mut().flatten() {
        drop(pass);
        pass = poll(entry).expect("handed over in order");
    }
    drop(pass);
    assert!(go_on());
    cpu_time() - start
}

/// As many, and behind them as many entries of one piece of work, which are refused when all slots are its own. How long that
/// took.
fn cut_behind(count: usize) -> Duration {
    let gate = Gate::builder().max(2).build().unwrap();
    let pass = gate.try_enter().unwrap();
    let start = cpu_time();
    let mut work = pin!(gate.run(async {
        tokio::task::yield_now().await;
        let mut own: Vec<Enter<'_>> = (0..count).map(|_| gate.enter()).collect();
        own.iter_mut().for_each(|entry| assert!(poll(entry).is_none()));
        tokio::task::yield_now().await;
        for entry in own {
            assert_eq!(entry.await.unwrap_err().reason, Reason::Reentrant);
        }
    }));
    let mut go_on = || work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!go_on(), "it holds a slot");
    let mut line: Vec<Enter<'_>> = (0..count).map(|_| gate.enter()).collect();
    line.iter_mut().for_each(|entry| assert!(poll(entry).is_none()));
    assert!(!go_on(), "its own stand behind them");
    gate.set_limits(Limits::builder().max(1).build().unwrap());
    drop(pass);
    assert_eq!(gate.look().waiting, count as u64, "those who hold nothing");
    assert!(go_on());
    cpu_time() - start
}

/// So many are enough for what grows with the square.
const HOLDERS: usize = if cfg!(debug_assertions) { 5_000 } else { 100_000 };

#[test]
fn g4_a_hundred_thousand_waiters_who_hold_slots_themselves_join_cancel_and_drain_in_linear_time() {
    // Seen to fail: with what they hold counted along the row at each step, those at once took eleven times as long as in parts,
    // where steps take the short way and where they take the long one.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let brisk = Gate::builder().max(2).build().unwrap();
    // A rate that is never spent: each step takes the long way.
    let slow = Gate::builder().max(2).rate(15_625, "1ms").burst(u32::MAX).clock(FakeClock::new());
    for gate in [brisk, slow.build().unwrap()] {
        let growth = growth(HOLDERS, |count| with_holders(&gate, count));
        assert!(growth <= GROWTH, "{HOLDERS} waiters took {growth} times as long at once as in ten parts");
    }
}

#[test]
fn g4_a_hundred_thousand_waiters_who_hold_the_last_slot_are_refused_in_linear_time() {
    // Seen to fail: with `cut_knot` walking the row to the first who holds something, past those who hold nothing.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let growth = growth(HOLDERS, cut_behind);
    assert!(growth <= GROWTH, "{HOLDERS} waiters took {growth} times as long at once as in ten parts");
}

#[test]
fn g4_nothing_is_left_allocated_after_a_million_waiters() {
    // Seen to fail: with `Slab::freed` keeping its memory when empty, 64 MB stay.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().max(1).build().unwrap();
    fill_cancel_drain(&gate, 1_000);
    let before = Memory::now().bytes;
    fill_cancel_drain(&gate, MANY);
    let after = Memory::now().bytes;
    assert!(after <= before + SMALL_CHANGE, "{before} bytes before, {after} after");
}

#[test]
fn g7_a_million_keys_that_came_and_went_leave_nothing_behind() {
    // Seen to fail: with `Lanes::remove` leaving the lane in its slab, memory grows with every key.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().max(3).keyed().max_keys(1_000_000).build().unwrap();
    let visit = |from: usize, to: usize| {
        for n in from..to {
            drop(gate.try_enter_key(&format!("tenant-{n}")).unwrap());
        }
    };
    visit(0, 1_000);
    let before = Memory::now().bytes;
    visit(1_000, MANY);
    let after = Memory::now().bytes;
    assert!(after <= before + SMALL_CHANGE, "{before} bytes before, {after} after");
}

#[test]
fn g7_a_live_lane_costs_at_most_128_bytes_beyond_its_key_and_all_of_it_comes_back() {
    // Seen to fail: with one word more in `Slot`, a lane takes two cache lines; with `Table` neither shrinking nor
    // giving up its places, the tables stay.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for count in [MANY / 1_000, MANY / 10, MANY] {
        let gate = Gate::builder().max(3).keyed().max_keys(1_000_000).build().unwrap();
        let mut passes = Vec::with_capacity(count);
        let mut key = String::with_capacity(32);
        let before = Memory::now().bytes;
        for n in 0..count {
            key.clear();
            std::fmt::Write::write_fmt(&mut key, format_args!("tenant-{n}")).unwrap();
            passes.push(gate.try_enter_key(&key).unwrap());
        }
        let per_lane = Memory::now().bytes.saturating_sub(before) as f64 / count as f64;
        assert!(per_lane <= 128.0 || count < 1_000, "{per_lane} bytes per lane with {count} lanes");
        passes.clear();
        let left = Memory::now().bytes.saturating_sub(before);
        assert!(left <= SMALL_CHANGE, "{left} bytes left of {count} lanes");
    }
}

#[test]
fn g7_a_million_keys_pinned_and_unpinned_leave_nothing_behind() {
    // Seen to fail: with `unpin` keeping the limits in `pins`, two megabytes stay after ten thousand keys.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().max(1).keyed().max_keys(1_000).build().unwrap();
    let limits = Limits::builder().max(3).build().unwrap();
    let pin_and_unpin = |count: usize| {
        for n in 0..count {
            let key = format!("tenant-{n}");
            assert!(gate.pin(&key, limits).unwrap() && gate.unpin(&key));
        }
    };
    pin_and_unpin(1_000);
    let before = Memory::now().bytes;
    pin_and_unpin(MANY);
    let after = Memory::now().bytes;
    assert!(after <= before + SMALL_CHANGE, "{before} bytes before, {after} after {MANY} keys");
    assert_eq!(gate.look().lanes, 0);
}

#[test]
fn g11_subscribers_that_left_are_not_kept() {
    // Seen to fail: with nobody taken out by `Bus::change`, a megabyte stays after ten thousand of them; with them taken out
    // by `post` alone, it stays if nothing happens meanwhile; with `change` never lowering its flags, entries go on being told
    // to nobody.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().max(2).build().unwrap();
    let come_and_go = |count: usize| {
        for n in 0..count {
            let events = gate.subscribe();
            if n < count / 2 {
                drop(gate.try_enter().unwrap());
            }
            drop(events);
        }
    };
    come_and_go(100);
    let before = Memory::now();
    come_and_go(MANY);
    let after = Memory::now();
    assert!(
        after.bytes <= before.bytes + SMALL_CHANGE,
        "{} bytes before, {} after",
        before.bytes,
        after.bytes
    );
    drop(gate.try_enter().unwrap());
    let before = Memory::now().allocations;
    (0..1_000).for_each(|_| drop(gate.try_enter().unwrap()));
    let allocations = Memory::now().allocations - before;
    assert!(allocations < 100, "{allocations} allocations in 1,000 entries that nobody hears of");
}

#[test]
fn g5_gates_that_come_and_go_leave_nothing_behind() {
    // Seen to fail: with `finish_slowly` not putting the desk into the pool, every gate leaks its desks.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let build_and_drop = |count: usize| {
        for n in 0..count {
            let gate = Gate::builder().max(2).name("short-lived").build().unwrap();
            let keyed = Gate::builder().max(2).rate(5, "1h").keyed().max_keys(1_000).build().unwrap();
            let passes = (gate.try_enter().unwrap(), keyed.try_enter_key(&n.to_string()).unwrap());
            let mut waits = [gate.enter().weight(2), gate.enter().weight(2)];
            waits.iter_mut().for_each(|entry| assert!(poll(entry).is_none()));
            drop(waits);
            drop(gate);
            drop(passes);
        }
    };
    build_and_drop(10);
    let before = Memory::now().bytes;
    build_and_drop(2_000);
    let after = Memory::now().bytes;
    assert!(after <= before + SMALL_CHANGE, "{before} bytes before, {after} after two thousand gates");
}

#[test]
fn g11_with_nobody_listening_an_entry_allocates_nothing() {
    // Seen to fail: with `admitted` announcing though nobody listens, each entry with a key allocates.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().max(2).timeout(Duration::from_secs(1)).build().unwrap();
    let keyed = Gate::builder().max(2).keyed().build().unwrap();
    drop(keyed.try_enter_key("tenant-42").unwrap());
    let before = Memory::now().allocations;
    for _ in 0..1_000 {
        drop(gate.try_enter().unwrap());
        drop(poll(&mut gate.enter()));
        drop(keyed.try_enter_key("tenant-42").unwrap());
    }
    let allocations = Memory::now().allocations - before;
    assert!(
        allocations < 100,
        "{allocations} allocations in 3,000 entries; the test runner itself makes a few"
    );
}

#[test]
fn g7_keys_that_waited_for_their_rate_and_went_leave_nothing_behind() {
    // Seen to fail: without `tidy` in `State::set_time`, each key leaves the moment at which it would have been looked at again.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gate = Gate::builder().rate(1, "1h").keyed().max_keys(10).build().unwrap();
    let visit = |from: usize, to: usize| {
        for n in from..to {
            let key = format!("tenant-{n}");
            gate.check_key(&key).unwrap();
            assert!(poll(&mut gate.enter_key(&key)).is_none());
        }
    };
    visit(0, 1_000);
    let before = Memory::now().bytes;
    visit(1_000, MANY);
    let after = Memory::now().bytes;
    assert!(after <= before + SMALL_CHANGE, "{before} bytes before, {after} after");
}

#[test]
fn g7_keys_that_rested_and_went_leave_nothing_behind_one_that_rests_long() {
    // Seen to fail: without `tidy` in `State::rest_at`, each key leaves the moment at which it was listed as idle.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(3_600, "1h").burst(100_000).clock(clock.clone());
    let gate = gate.keyed().max_keys(100).build().unwrap();
    // All of its burst: for more than a day it is the first of the idle lanes, and nothing behind it is looked at.
    (0..100_000).for_each(|_| gate.check_key("long").unwrap());
    let visit = |times: usize| {
        for _ in 0..times {
            gate.check_key("short").unwrap();
            let pass = gate.try_enter_key("short").unwrap();
            clock.advance(Duration::from_secs(3));
            drop(pass);
            assert_eq!(gate.look().lanes, 1, "it has rested, and is forgotten");
        }
    };
    visit(100);
    let before = Memory::now().bytes;
    visit(10_000);
    let after = Memory::now().bytes;
    assert!(after <= before + SMALL_CHANGE, "{before} bytes before, {after} after");
}
