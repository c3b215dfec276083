//! G9 rate: how often work starts.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use flowgate::{Gate, Limits, Reason};
use flowgate_testkit::{Driven, FakeClock};

#[test]
fn g9_a_window_lets_rate_start_per_period_counted_from_its_first_start() {
    // Seen to fail: with `Rate::spend` opening windows at multiples of the period, two start too early.
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(2, "10s").clock(clock.clone()).build().unwrap();
    clock.advance(Duration::from_secs(7));
    let mut line: Vec<_> = (0..5).map(|_| Driven::new(gate.enter())).collect();
    let started = |line: &mut Vec<Driven<'_, _>>| {
        let before = line.len();
        line.retain_mut(|entrant: &mut Driven<'_, Result<flowgate::Pass, _>>| entrant.poll().is_none());
        before - line.len()
    };
    assert_eq!(started(&mut line), 2);
    clock.advance(Duration::from_millis(9_999));
    assert_eq!(started(&mut line), 0);
    clock.advance(Duration::from_millis(2));
    assert_eq!(
        line.iter().map(Driven::woken).collect::<Vec<_>>(),
        [1, 1, 0],
        "woken in order, no more than allowed"
    );
    assert_eq!(started(&mut line), 2);
    clock.advance(Duration::from_secs(11));
    assert_eq!(started(&mut line), 1);
}

#[test]
fn g9_a_bucket_refills_steadily_and_never_holds_more_than_its_burst() {
    // Seen to fail: with the tolerance of `burst` instead of `burst - 1` steps, a fourth starts at once.
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(10, "1s").burst(3).reject().clock(clock.clone()).build().unwrap();
    clock.advance(Duration::from_secs(100));
    assert_eq!((0..9).filter(|_| gate.check().is_ok()).count(), 3);
    let refusal = gate.check().unwrap_err();
    assert_eq!((refusal.reason, refusal.retry_after), (Reason::Rate, Some(Duration::from_millis(100))));
    assert_eq!(refusal.code().as_str(), "RC5013");
    for _ in 0..20 {
        clock.advance(Duration::from_millis(100));
        assert_eq!((0..9).filter(|_| gate.check().is_ok()).count(), 1);
    }
}

#[test]
fn g9_rate_and_max_hold_independently() {
    // Seen to fail: with `hold` asking for the rate only when no max is set, a fourth starts in the first minute.
    let clock = FakeClock::new();
    let gate = Gate::builder().max(7).rate(3, "1m").clock(clock.clone()).build().unwrap();
    let out: Vec<_> = (0..3).map(|_| gate.try_enter().unwrap()).collect();
    assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Rate, "four slots are free, the rate is spent");
    drop(out);
    assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Rate, "how long work ran does not count");
    clock.advance(Duration::from_secs(61));
    let gate = Gate::builder().max(1).rate(100, "1m").clock(clock.clone()).build().unwrap();
    let pass = gate.try_enter().unwrap();
    assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Busy, "the rate is open, the slot is taken");
    assert_eq!(gate.look().rate.unwrap().remaining, 99, "a start is spent only when the pass is given");
    drop(pass);
}

#[test]
fn g9_waiting_for_the_rate_holds_no_slot() {
    // Seen to fail: with `join` taking the slot before the rate allows it, `in_use` is two.
    let clock = FakeClock::new();
    let gate = Gate::builder().max(2).rate(1, "10s").clock(clock.clone()).build().unwrap();
    let pass = gate.try_enter().unwrap();
    let mut waits = Driven::pending(gate.enter());
    assert_eq!((gate.look().in_use, gate.look().waiting), (1, 1));
    drop(pass);
    assert_eq!(gate.look().in_use, 0);
    clock.advance(Duration::from_secs(11));
    drop(waits.ready().unwrap());
}

#[test]
fn g9_a_start_handed_to_one_who_is_gone_is_not_spent() {
    // Seen to fail: with `cancel` not refunding, the last entry waits for another window.
    let clock = FakeClock::new();
    let gate = Gate::builder().max(5).rate(2, "10s").clock(clock.clone()).build().unwrap();
    drop((gate.try_enter().unwrap(), gate.try_enter().unwrap()));
    let gone = Driven::pending(gate.enter());
    let mut next = Driven::pending(gate.enter());
    let mut last = Driven::pending(gate.enter());
    clock.advance(Duration::from_secs(11));
    assert_eq!((gone.woken(), next.woken(), last.woken()), (1, 1, 0));
    drop(gone);
    drop((next.ready().unwrap(), last.ready().unwrap()));
    assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Rate, "and two is all there is");
}

#[test]
fn g9_a_live_change_of_the_rate_reaches_those_who_wait() {
    // Seen to fail: with `carry_rates` forgetting what was spent, all three start in the same hour.
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(2, "1h").clock(clock.clone()).build().unwrap();
    drop((gate.try_enter().unwrap(), gate.try_enter().unwrap()));
    let mut line: Vec<_> = (0..3).map(|_| Driven::pending(gate.enter())).collect();
    gate.set_limits(Limits::builder().rate(4, "1h").build().unwrap());
    assert_eq!(line.iter().map(Driven::woken).collect::<Vec<_>>(), [1, 1, 0], "two more in the same hour");
    gate.set_limits(Limits::builder().rate(1, "1h").build().unwrap());
    assert_eq!(line[2].woken(), 0, "what was spent stays spent");
    clock.advance(Duration::from_secs(3601));
    drop(line[2].ready().unwrap());
    gate.set_limits(Limits::builder().max(5).build().unwrap());
    let unlimited: Vec<_> = (0..3).map(|_| gate.try_enter().unwrap()).collect();
    drop(unlimited);
}

#[test]
fn g9_a_check_goes_by_the_rate_that_was_set_last_not_by_the_one_built_with() {
    // Seen to fail: with `express` lending whatever rate is in force, checks go by the rate the gate was built with.
    let clock = FakeClock::new();
    let limits = |rate: u32| Limits::builder().rate(rate, "1h").build().unwrap();
    let allowed = |gate: &Gate| (0..9).filter(|_| gate.check().is_ok()).count();
    for built in [Gate::builder().rate(2, "1h"), Gate::builder().rate(2, "1h").reject()] {
        let gate = built.clock(clock.clone()).build().unwrap();
        assert_eq!(allowed(&gate), 2);
        gate.set_limits(limits(5));
        assert_eq!(allowed(&gate), 3, "two of five were spent");
        gate.set_limits(limits(1));
        clock.advance(Duration::from_secs(3601));
        assert_eq!(allowed(&gate), 1);
        gate.set_limits(Limits::builder().rate(3600, "1h").burst(4).build().unwrap());
        clock.advance(Duration::from_secs(3601));
        assert_eq!(allowed(&gate), 4);
        assert_eq!(gate.check().unwrap_err().retry_after, Some(Duration::from_secs(1)));
        gate.set_limits(limits(2));
        clock.advance(Duration::from_secs(3601));
        assert_eq!(allowed(&gate), 2, "and by the first again, once that is set again");
        assert!(gate.try_enter().is_err(), "by any way in");
    }
}

#[test]
fn g9_a_refusal_at_a_desk_says_in_how_long_the_rate_allows_one_more() {
    // Seen to fail: with `refusal_of` leaving `retry_after` at none; and with it telling the moment, not the time until then.
    let clock = FakeClock::new();
    let bucket = || Gate::builder().rate(10, "1s").burst(3).clock(clock.clone());
    let keyed = bucket().keyed().build().unwrap();
    let with_max = bucket().max(5).build().unwrap();
    clock.advance(Duration::from_secs(1));
    for _ in 0..3 {
        keyed.check_key("a").unwrap();
        drop(with_max.try_enter().unwrap());
    }
    for (passed, left) in [(0, 100), (30, 70), (69, 1)] {
        clock.advance(Duration::from_millis(passed));
        let left = Some(Duration::from_millis(left));
        for refusal in [
            keyed.check_key("a").unwrap_err(),
            keyed.try_enter_key("a").unwrap_err(),
            with_max.try_enter().unwrap_err(),
            with_max.check().unwrap_err(),
        ] {
            assert_eq!((refusal.reason, refusal.retry_after), (Reason::Rate, left));
        }
    }
    clock.advance(Duration::from_millis(1));
    let pass = keyed.try_enter_key("a").unwrap();
    drop((pass, with_max.try_enter().unwrap()));
    let busy = Gate::builder().max(1).rate(10, "1s").clock(clock.clone()).build().unwrap();
    let pass = busy.try_enter().unwrap();
    assert_eq!(busy.try_enter().unwrap_err().retry_after, None, "nobody knows when a slot comes back");
    drop(pass);
}

#[test]
fn g9_each_key_has_its_own_rate() {
    // Seen to fail: with `locate` leading every key to one lane, the second key is refused.
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(1, "10s").keyed().clock(clock.clone()).build().unwrap();
    let mut waits = Vec::new();
    for key in ["a", "b", "c"] {
        gate.check_key(key).unwrap();
        assert_eq!(gate.check_key(key).unwrap_err().reason, Reason::Rate);
        waits.push(Driven::pending(gate.enter_key(key)));
        clock.advance(Duration::from_secs(2));
    }
    clock.advance(Duration::from_secs(5));
    assert_eq!(waits.iter().map(Driven::woken).collect::<Vec<_>>(), [1, 0, 0], "each at its own moment");
    clock.advance(Duration::from_secs(6));
    waits.iter_mut().for_each(|entrant| drop(entrant.ready().unwrap()));
}

#[test]
fn g9_a_check_of_a_key_that_is_remembered_knows_what_an_operator_said() {
    // Seen to fail: with `State::check_brisk` not asking for the pause, for the pin or for the close, at each of these in turn.
    let gate = Gate::builder().rate(9, "1m").clock(FakeClock::new()).keyed().build().unwrap();
    let check = || gate.check_key("a").map_err(|refusal| refusal.reason);
    // Remembered by the first, found by the second.
    assert_eq!([check(), check()], [Ok(()); 2]);
    gate.pause();
    assert_eq!(check(), Err(Reason::Paused));
    gate.resume();
    assert_eq!(check(), Ok(()));
    assert!(gate.pin("a", Limits::builder().rate(3, "1m").build().unwrap()).unwrap());
    assert_eq!(check(), Err(Reason::Rate), "three were spent");
    assert!(gate.unpin("a"));
    assert_eq!(check(), Ok(()));
    gate.set_limits(Limits::builder().max(1).build().unwrap()).unwrap();
    assert_eq!((check(), gate.look().lanes), (Ok(()), 0), "without a rate nothing is remembered");
    gate.set_limits(Limits::builder().rate(9, "1m").build().unwrap()).unwrap();
    assert_eq!([check(), check()], [Ok(()); 2]);
    let _closing = gate.close(Duration::from_secs(1));
    assert_eq!(check(), Err(Reason::Closed));
}

#[test]
fn g9_over_threads_no_window_has_more_than_its_rate() {
    // Seen to fail: with `Express::spend` storing instead of comparing and swapping, starts are lost from the count.
    for _ in 0..10 {
        let gate = Gate::builder().rate(10_000, "1h").build().unwrap();
        let all_here = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (gate, all_here) = (gate.clone(), Arc::clone(&all_here));
                std::thread::spawn(move || {
                    all_here.wait();
                    (0..10_000).filter(|_| gate.check().is_ok()).count()
                })
            })
            .collect();
        assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>(), 10_000);
    }
}

#[test]
fn g9_a_refused_check_says_how_many_passes_are_out() {
    // Seen to fail: with the express lane silent about them, it says that none are.
    let clock = FakeClock::new();
    let gate = Gate::builder().rate(4, "10s").clock(clock.clone()).build().unwrap();
    let passes = (gate.try_enter().unwrap(), gate.enter().weight(2).now().unwrap());
    let in_use = || {
        while gate.check().is_ok() {}
        gate.check().unwrap_err().in_use
    };
    assert_eq!(in_use(), 3);
    drop(passes.1);
    assert_eq!(in_use(), 1);
    let mut waits = Driven::pending(gate.enter());
    clock.advance(Duration::from_secs(11));
    let pass = waits.ready().unwrap();
    assert_eq!(in_use(), 2);
    drop((passes.0, pass));
    assert_eq!(in_use(), 0);
}
