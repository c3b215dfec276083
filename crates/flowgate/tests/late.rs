//! G3, G7, G8 under a clock that rings late, so that much falls due at once; and under one that fails to be set.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowgate::{
    Gate, Limits, Reason, Tick,
    clock::{Alarm, Clock},
};
use flowgate_testkit::{Driven, FakeClock, LateClock};

#[test]
fn g3_waits_that_end_late_and_together_with_a_rate_end_for_all() {
    // Seen to fail: with `turn_away` looking after lanes that its own sweep took away, it panics, and nobody is woken.
    let clock = Arc::new(LateClock::default());
    let gate = Gate::builder().rate(1, "100ms").timeout(Duration::from_millis(50)).keyed().max_keys(100);
    let gate = gate.clock(clock.clone()).build().unwrap();
    let mut busy = vec![gate.try_enter_key("busy").unwrap()];
    clock.jump(101);
    clock.ring();
    drop(gate.try_enter_key("idle").unwrap());
    clock.jump(50);
    clock.ring();
    busy.push(gate.try_enter_key("busy").unwrap());
    let mut waiting = ["busy", "idle"].map(|key| Driven::pending(gate.enter_key(key)));
    drop(busy);
    // Both have waited too long, and what the idle one waited for has come as well.
    clock.jump(60);
    clock.ring();
    for each in &mut waiting {
        assert_eq!(each.ready().unwrap_err().reason, Reason::QueueTimeout);
    }
    assert_eq!((gate.look().waiting, gate.look().lanes), (0, 1), "the rate of one still remembers");
    drop(gate.try_enter_key("idle").unwrap());
}

#[test]
fn g8_limits_that_turn_somebody_away_may_leave_other_lanes_without_a_meaning() {
    // Seen to fail: with `pump_all` looking at lanes that its own sweep took away, it panics.
    let clock = Arc::new(LateClock::default());
    let gate = Gate::builder().max(5).rate(1, "100ms").keyed().max_keys(100);
    let gate = gate.clock(clock.clone()).build().unwrap();
    let mut busy = vec![gate.try_enter_key("busy").unwrap()];
    drop(gate.try_enter_key("idle").unwrap());
    clock.jump(110);
    clock.ring();
    busy.push(gate.try_enter_key("busy").unwrap());
    let mut heavy = Driven::pending(gate.enter_key("busy").weight(2));
    drop(busy);
    gate.set_limits(Limits::builder().max(1).rate(1, "100ms").build().unwrap()).unwrap();
    assert_eq!(heavy.ready().unwrap_err().reason, Reason::TooHeavy);
    assert_eq!(gate.look().lanes, 1);
    drop(gate.try_enter_key("idle").unwrap());
}

/// A clock that panics as an alarm is set, for as long as it is told to.
struct Unwinding {
    clock: Arc<FakeClock>,
    panics: AtomicBool,
}

impl Clock for Unwinding {
    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn wake_at(&self, at: Tick, alarm: &'static dyn Alarm) {
        assert!(!self.panics.load(Ordering::SeqCst), "it does not wind");
        self.clock.wake_at(at, alarm);
    }
}

#[test]
fn g3_who_came_as_no_alarm_could_be_set_has_its_place_and_its_time() {
    // Seen to fail: without `catch_unwind` in `Desk::arm`, whoever enters panics, and its place in line is nobody's; with
    // `armed` written before the alarm is set, none is set again, and nobody's time is ever over; with those who join behind
    // others on the short way all the same, it is set too late.
    let (second, clock) = (Duration::from_secs(1), FakeClock::new());
    let unwinding = Arc::new(Unwinding { clock: clock.clone(), panics: AtomicBool::new(true) });
    let builder = || Gate::builder().max(1).timeout(second).clock(unwinding.clone());
    let (gate, keyed) = (builder().build().unwrap(), builder().keyed().build().unwrap());
    let passes = [gate.try_enter().unwrap(), keyed.try_enter_key("a").unwrap()];
    let mut first = [Driven::pending(gate.enter()), Driven::pending(keyed.enter_key("a"))];
    drop(passes);
    let passes = first.each_mut().map(|entrant| entrant.ready().unwrap());
    let mut waiting = vec![Driven::pending(gate.enter()), Driven::pending(keyed.enter_key("a"))];
    unwinding.panics.store(false, Ordering::SeqCst);
    waiting.extend([Driven::pending(gate.enter()), Driven::pending(keyed.enter_key("a"))]);
    clock.advance(second);
    for mut entrant in waiting {
        assert_eq!(entrant.ready().unwrap_err().reason, Reason::QueueTimeout);
    }
    drop(passes);
    assert_eq!((gate.look().in_use, keyed.look().in_use), (0, 0));
}

#[test]
fn g3_a_check_sets_the_alarm_that_could_not_be_set_for_another_key() {
    // Seen to fail: with `is_unset` not asked in `check_brisk`, nobody set it, and the rate of `a` never refilled.
    let (second, clock) = (Duration::from_secs(1), FakeClock::new());
    let unwinding = Arc::new(Unwinding { clock: clock.clone(), panics: AtomicBool::new(false) });
    let gate = Gate::builder().rate(2, "1s").queue(1).keyed().max_keys(1_000);
    let gate = gate.clock(unwinding.clone()).build().unwrap();
    // So many that some of them share its desk.
    let others: Vec<String> = (0..500).map(|number| format!("other {number}")).collect();
    others.iter().for_each(|other| gate.check_key(other).unwrap());
    (0..2).for_each(|_| gate.check_key("a").unwrap());
    unwinding.panics.store(true, Ordering::SeqCst);
    let mut waiting = Driven::pending(gate.enter_key("a"));
    unwinding.panics.store(false, Ordering::SeqCst);
    others.iter().for_each(|other| gate.check_key(other).unwrap());
    clock.advance(second);
    drop(waiting.ready().unwrap());
}
