//! G3, G7, G8 under a clock that rings late: much falls due at once.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{sync::Arc, time::Duration};

use flowgate::{Gate, Limits, Reason};
use flowgate_testkit::{Driven, LateClock};

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
