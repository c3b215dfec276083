//! G7 lanes, G8 live limits, G9 rate, where a key has limits of its own: pinned, kept, and given up again.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{sync::Arc, time::Duration};

use flowgate::{Gate, KeyedGate, Limits, Reason, gate::LaneLook};
use flowgate_testkit::{Driven, FakeClock};

fn max(max: u32) -> Limits {
    Limits::builder().max(max).build().unwrap()
}

fn rate(rate: u32, period: &'static str) -> Limits {
    Limits::builder().rate(rate, period).build().unwrap()
}

fn rated(per_hour: u32, max_keys: u32, clock: &Arc<FakeClock>) -> KeyedGate {
    let builder = Gate::builder().rate(per_hour, "1h").keyed().max_keys(max_keys);
    builder.clock(clock.clone()).build().unwrap()
}

/// How many of this key may be out at once.
fn room(gate: &KeyedGate, key: &str) -> usize {
    let passes: Vec<_> = (0..100).map_while(|_| gate.try_enter_key(key).ok()).collect();
    passes.len()
}

fn is_pinned(gate: &KeyedGate, key: &str) -> bool {
    gate.look_key(key).is_some_and(|LaneLook { is_pinned, .. }| is_pinned)
}

#[test]
fn g7_a_pinned_lane_is_not_forgotten_when_its_last_pass_comes_back() {
    // Seen to fail: with `pin` leaving `is_plain` true, and without `is_pinned` in `rest`: either way the lane is gone, and
    // its pin with it.
    let gate = Gate::builder().max(1).keyed().build().unwrap();
    assert!(gate.pin("vip", max(3)).unwrap());
    assert!(is_pinned(&gate, "vip"), "before anybody came");
    for _ in 0..2 {
        assert_eq!(room(&gate, "vip"), 3);
        assert!(is_pinned(&gate, "vip"), "after the last one left");
    }
    let passes = [(); 3].map(|()| gate.try_enter_key("vip").unwrap());
    drop(Driven::pending(gate.enter_key("vip")));
    drop(passes);
    assert_eq!(room(&gate, "vip"), 3, "nor when one who waited gave up");
    assert_eq!((room(&gate, "other"), gate.look().lanes), (1, 1), "others are forgotten as before");
}

#[test]
fn g7_a_check_forgets_no_pin() {
    // Seen to fail: without `is_pinned` in `State::check`, the first check forgets the lane, and its pin with it.
    let clock = FakeClock::new();
    let gate = rated(2, 10, &clock);
    assert!(gate.pin("vip", max(1)).unwrap());
    for _ in 0..5 {
        gate.check_key("vip").unwrap();
        assert!(is_pinned(&gate, "vip"));
    }
}

#[test]
fn g7_a_pinned_lane_never_leaves_for_a_new_key() {
    // Seen to fail: without `is_pinned` in `least_recently_used`, `vip` leaves for `c`.
    let clock = FakeClock::new();
    let gate = rated(1, 3, &clock);
    for key in ["vip", "a", "b"] {
        gate.check_key(key).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    assert!(gate.pin("vip", rate(2, "1h")).unwrap(), "idle, listed and the oldest: then it is pinned");
    gate.check_key("c").unwrap();
    assert!(is_pinned(&gate, "vip"));
    assert_eq!(gate.look_key("a"), None, "the oldest that is not pinned left instead");
    gate.check_key("vip").unwrap();
    assert_eq!(gate.check_key("vip").unwrap_err().reason, Reason::Rate, "one before the pin, and one after");
    clock.advance(Duration::from_secs(3 * 3600));
    assert!(is_pinned(&gate, "vip"));
    assert_eq!(gate.look().lanes, 1, "the others' rates have rested");
}

#[test]
fn g7_pinned_keys_count_as_keys() {
    // Seen to fail: with `pin` not taking from `spare`, a third key is pinned where there is room for two; with
    // `Engine::pin` not making room, the second is not.
    let clock = FakeClock::new();
    let gate = rated(1, 2, &clock);
    gate.check_key("idle").unwrap();
    assert!(gate.pin("a", max(1)).unwrap());
    assert!(gate.pin("b", max(1)).unwrap(), "the idle one leaves");
    assert!(!gate.pin("c", max(1)).unwrap());
    assert!(gate.pin("a", max(2)).unwrap(), "a key that is there needs no room");
    assert_eq!(gate.try_enter_key("c").unwrap_err().reason, Reason::KeysFull);
    assert!(gate.unpin("b"));
    gate.check_key("c").unwrap();
    assert_eq!((gate.look().lanes, room(&gate, "a")), (2, 2));
}

#[test]
fn g8_other_limits_for_the_gate_leave_a_pinned_lane_alone() {
    // Seen to fail: with `relimit` not asking for pins when it sets `is_plain`, the lane is forgotten with its pass; with
    // `carry_rates` touching pinned lanes, what was spent of the pinned rate is forgotten.
    let clock = FakeClock::new();
    let gate = rated(1, 10, &clock);
    assert!(gate.pin("wide", max(3)).unwrap());
    assert!(gate.pin("slow", rate(2, "1h")).unwrap());
    (0..2).for_each(|_| gate.check_key("slow").unwrap());
    gate.set_limits(max(1)).unwrap();
    assert_eq!(gate.check_key("slow").unwrap_err().reason, Reason::Rate, "spent is spent");
    for _ in 0..2 {
        assert_eq!(room(&gate, "wide"), 3);
    }
    gate.set_limits(rate(1_000, "1m")).unwrap();
    assert_eq!(
        gate.check_key("slow").unwrap_err().reason,
        Reason::Rate,
        "under a rate of the gate's as well"
    );
    assert_eq!((room(&gate, "wide"), gate.look().lanes), (3, 2));
}

#[test]
fn g8_unpinning_one_key_leaves_another_pinned() {
    // Seen to fail: with `unpin` not asking for other pins when it sets `is_plain`, `b` is forgotten with its pass.
    let gate = Gate::builder().max(1).keyed().max_keys(10).build().unwrap();
    assert!(gate.pin("a", max(2)).unwrap() && gate.pin("b", max(3)).unwrap());
    assert!(gate.unpin("a"));
    for _ in 0..2 {
        assert_eq!((room(&gate, "a"), room(&gate, "b")), (1, 3));
    }
    assert!(gate.unpin("b"));
    assert_eq!((room(&gate, "b"), gate.look().lanes), (1, 0));
}

#[test]
fn g8_unpinning_lets_start_who_may_now() {
    // Seen to fail: without `look_again` in `unpin`, nobody is woken; without its `rest`, or with `set_pinned` left out, the
    // idle lane stays.
    let gate = Gate::builder().max(3).keyed().build().unwrap();
    assert!(gate.pin("vip", max(1)).unwrap());
    let pass = gate.try_enter_key("vip").unwrap();
    let mut line = [(); 3].map(|()| Driven::pending(gate.enter_key("vip")));
    assert!(gate.unpin("vip"));
    assert_eq!(line.each_ref().map(Driven::woken), [1, 1, 0], "three are in, in their order");
    let passes = (line[0].ready().unwrap(), line[1].ready().unwrap());
    drop(pass);
    drop((line[2].ready().unwrap(), passes));
    assert_eq!(gate.look().lanes, 0);
    assert!(gate.pin("idle", max(1)).unwrap());
    assert_eq!(gate.look().lanes, 1);
    assert!(gate.unpin("idle"));
    assert_eq!(gate.look().lanes, 0, "nothing in flight, nobody waiting, no pin");
}

#[test]
fn g9_a_rate_that_refills_sooner_under_a_pin_lets_start_sooner() {
    // Seen to fail: with `look_again` leaving `is_timed`, the alarm stays where the hour ends and nobody is woken before.
    let clock = FakeClock::new();
    let gate = rated(1, 10, &clock);
    gate.check_key("pinned").unwrap();
    let mut waits = Driven::pending(gate.enter_key("pinned"));
    assert!(gate.pin("pinned", rate(1, "1m")).unwrap());
    clock.advance(Duration::from_secs(59));
    assert_eq!(waits.woken(), 0);
    clock.advance(Duration::from_secs(2));
    drop(waits.ready().unwrap());
    let gate = Gate::builder().rate(1, "1m").keyed().clock(clock.clone()).build().unwrap();
    assert!(gate.pin("unpinned", rate(1, "1h")).unwrap());
    gate.check_key("unpinned").unwrap();
    let mut waits = Driven::pending(gate.enter_key("unpinned"));
    assert!(gate.unpin("unpinned"));
    assert_eq!(waits.woken(), 0, "what was spent under the pin stays spent");
    clock.advance(Duration::from_secs(61));
    drop(waits.ready().unwrap());
}

#[test]
fn g9_a_pinned_rate_holds_where_the_gate_has_none() {
    // Seen to fail: with `needs_time` not asking for pins, time stands still in the lane and the window never ends.
    let clock = FakeClock::new();
    let gate = Gate::builder().max(5).keyed().clock(clock.clone()).build().unwrap();
    assert!(gate.pin("slow", rate(1, "10s")).unwrap());
    for _ in 0..3 {
        gate.check_key("slow").unwrap();
        clock.advance(Duration::from_secs(4));
        let refusal = gate.check_key("slow").unwrap_err();
        assert_eq!(refusal.reason, Reason::Rate);
        let until = refusal.retry_after.unwrap();
        assert!(until >= Duration::from_secs(6) && until < Duration::from_millis(6_001), "{until:?}");
        let mut waits = Driven::pending(gate.enter_key("slow"));
        clock.advance(until);
        drop(waits.ready().unwrap());
        clock.advance(Duration::from_secs(11));
    }
}

#[test]
fn g13_a_pass_tells_how_its_lane_stands_as_a_look_does() {
    // Seen to fail: with the gate's own limits told in place of those that are pinned.
    let clock = FakeClock::new();
    let builder = Gate::builder().max(2).rate(10, "1h").keyed();
    let gate = builder.clock(clock.clone()).build().unwrap();
    let pinned = Limits::builder().max(5).rate(20, "1m").build().unwrap();
    assert!(gate.pin("vip", pinned).unwrap());
    for (key, max, limit) in [("other", 2, 10), ("vip", 5, 20)] {
        let passes = [(); 2].map(|()| gate.try_enter_key(key).unwrap());
        clock.advance(Duration::from_secs(1));
        let (standing, rate) = passes[0].standing_and_rate();
        let look = gate.look_key(key).unwrap();
        assert_eq!((standing.max, standing.in_use, standing.waiting), (Some(max), 2, 0), "{key}");
        let (rate, left) = rate.unwrap();
        assert_eq!((Some(&rate), Some(left)), (look.limits.rate(), look.rate), "{key}");
        assert_eq!((left.limit, left.remaining), (limit, limit - 2), "{key}");
    }
    let free = Gate::builder().max(3).build().unwrap();
    let pass = free.try_enter().unwrap();
    let (standing, rate) = pass.standing_and_rate();
    assert_eq!((standing, rate), (pass.standing(), None));
}

#[test]
fn g13_the_rate_of_a_key_is_told_as_a_look_does() {
    // Seen to fail: with the gate's own rate told in place of the one that is pinned; with all of it told of a lane
    // that has spent some.
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(10, "1h").keyed().clock(clock.clone()).build().unwrap();
    assert!(gate.pin("vip", rate(20, "1m")).unwrap() && gate.pin("free", max(3)).unwrap());
    let (of_all, left) = gate.rate_of_key("nobody").unwrap();
    assert_eq!((Some(&of_all), left), (gate.limits().rate(), None));
    for key in ["other", "vip"] {
        gate.check_key(key).unwrap();
        clock.advance(Duration::from_secs(1));
        let look = gate.look_key(key).unwrap();
        assert_eq!(gate.rate_of_key(key), look.limits.rate().copied().map(|rate| (rate, look.rate)), "{key}");
        assert!(look.rate.is_some_and(|left| left.remaining + 1 == left.limit), "{key}");
    }
    assert_eq!(gate.rate_of_key("free"), None);
}
