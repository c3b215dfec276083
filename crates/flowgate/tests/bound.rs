//! G1 bound, G2 order, G3 overflow, G4 cancel, G5 settle: the slots and the line of one lane.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use flowgate::{Gate, Limits, Reason};
use flowgate_testkit::{Driven, FakeClock};

fn gate(max: u32) -> Gate {
    Gate::builder().max(max).build().unwrap()
}

#[test]
fn g1_no_more_than_max_are_out_by_any_way_in() {
    // Seen to fail: with `Express::take` not subtracting the weight, the third `try_enter` succeeds.
    let gate = gate(2);
    let first = gate.try_enter().unwrap();
    let second = gate.try_enter().unwrap();
    assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Busy);
    let mut third = Driven::pending(gate.enter());
    assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Busy, "nor past the line");
    drop(first);
    let third = third.ready().unwrap();
    assert_eq!(gate.look().in_use, 2);
    drop((second, third));
    assert_eq!(gate.look().in_use, 0);
}

#[test]
fn g1_the_bound_holds_over_threads() {
    // Seen to fail: with `Desk::fetch` not taking the counts in (`is_out` left true), more than eight are in at once.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let gate = gate(8);
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let (gate, inside) = (gate.clone(), Arc::clone(&inside));
                tokio::spawn(async move {
                    for round in 0..500 {
                        let pass = gate.enter().await.unwrap();
                        let now = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                        assert!(now <= 8, "{now} are in at once");
                        if (task + round) % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(pass);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let look = gate.look();
    assert_eq!((look.in_use, look.waiting), (0, 0));
    assert_eq!((0..9).map_while(|_| gate.try_enter().ok()).collect::<Vec<_>>().len(), 8, "no slot was lost");
}

#[test]
fn g2_the_line_is_first_in_first_out() {
    // Seen to fail: with `Line::join` putting newcomers at the front of the row, the order comes out reversed.
    let gate = gate(1);
    let mut pass = gate.try_enter().unwrap();
    let mut line: Vec<_> = (0..50).map(|_| Driven::pending(gate.enter())).collect();
    for place in 0..50 {
        drop(pass);
        for (other, entrant) in line.iter_mut().enumerate().skip(place + 1) {
            assert_eq!(entrant.woken(), 0, "{other} was woken before its turn");
        }
        pass = line[place].ready().unwrap();
    }
}

#[test]
fn g2_a_newcomer_cannot_overtake_one_who_was_handed_a_slot() {
    // Seen to fail: with `leave_brisk` settling the slot it hands over, the newcomer gets in.
    let gate = gate(1);
    let pass = gate.try_enter().unwrap();
    let mut head = Driven::pending(gate.enter());
    drop(pass);
    assert!(gate.try_enter().is_err(), "the slot is the head's already, though it has not looked yet");
    let mut newcomer = Driven::pending(gate.enter());
    drop(head.ready().unwrap());
    drop(newcomer.ready().unwrap());
}

#[test]
fn g2_a_heavy_head_is_not_starved_by_light_ones() {
    // Seen to fail: with `pump` skipping a head that does not fit, the light one behind it starts first.
    let gate = gate(4);
    let mut out: Vec<_> = (0..4).map(|_| gate.try_enter().unwrap()).collect();
    let mut heavy = Driven::pending(gate.enter().weight(3));
    let mut light = Driven::pending(gate.enter());
    for _ in 0..2 {
        drop(out.pop());
        assert_eq!((heavy.woken(), light.woken()), (0, 0), "nobody goes before the heavy one fits");
    }
    assert!(gate.try_enter().is_err(), "two slots are free, and kept for the head");
    drop(out.pop());
    let heavy = heavy.ready().unwrap();
    assert_eq!(light.woken(), 0);
    assert_eq!(heavy.weight(), 3);
    drop(heavy);
    drop(light.ready().unwrap());
}

#[test]
fn g2_one_who_fits_behind_the_head_starts_with_it() {
    // Seen to fail: with `hands_over` content with less than `max` in use, the light one waits beside a free slot.
    let gate = gate(3);
    let out = gate.enter().weight(2).now().unwrap();
    let mut heavy = Driven::pending(gate.enter().weight(2));
    let mut light = Driven::pending(gate.enter());
    drop(out);
    let passes = (heavy.ready().unwrap(), light.ready().unwrap());
    assert_eq!(gate.look().in_use, 3);
    drop(passes);
}

#[test]
fn g3_at_most_max_queue_wait() {
    // Seen to fail: with `decide` comparing `waiting > max`, a third waits.
    let gate = Gate::builder().max(1).queue(2).name("pool").label("reads").build().unwrap();
    let pass = gate.try_enter().unwrap();
    let first = Driven::pending(gate.enter());
    let mut second = Driven::pending(gate.enter());
    let refusal = Driven::new(gate.enter()).poll().unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::QueueFull);
    assert_eq!(
        refusal.to_string(),
        "RC5026: gate `pool` [reads] refused: queue-full (1 in use of 1, 2 waiting)"
    );
    drop(first);
    let third = Driven::pending(gate.enter());
    drop(pass);
    drop(second.ready().unwrap());
    drop(third);
}

#[test]
fn g3_in_reject_mode_nobody_waits() {
    // Seen to fail: with `decide` saying `Wait` for `Overflow::Reject`, the second entry at the desk is pending.
    let by_express_lane = Gate::builder().max(1);
    let at_the_desk = Gate::builder().max(1).rate(9, "1m");
    for builder in [by_express_lane, at_the_desk] {
        let gate = builder.reject().build().unwrap();
        let pass = Driven::new(gate.enter()).poll().unwrap().unwrap();
        assert_eq!(Driven::new(gate.enter()).poll().unwrap().unwrap_err().reason, Reason::Busy);
        drop(pass);
        drop(Driven::new(gate.enter()).poll().unwrap().unwrap());
        assert_eq!(gate.look().refusals.of(Reason::Busy), 1);
    }
}

#[test]
fn g3_nobody_waits_longer_than_the_timeout() {
    // Seen to fail: with `next_due` ignoring the line, no alarm is set and nobody is woken.
    let clock = FakeClock::new();
    let gate = Gate::builder().max(1).timeout(Duration::from_secs(2)).clock(clock.clone()).build().unwrap();
    let pass = gate.try_enter().unwrap();
    let mut first = Driven::pending(gate.enter());
    clock.advance(Duration::from_secs(1));
    let mut second = Driven::pending(gate.enter());
    clock.advance(Duration::from_millis(999));
    assert_eq!((first.woken(), second.woken()), (0, 0));
    clock.advance(Duration::from_millis(1));
    assert_eq!(first.ready().unwrap_err().reason, Reason::QueueTimeout);
    assert_eq!(second.woken(), 0);
    drop(pass);
    drop(second.ready().unwrap());
    clock.advance(Duration::from_secs(60));
    assert_eq!(clock.alarms(), 0, "with nobody waiting no alarm is set again");
}

#[test]
fn g3_a_slot_that_comes_too_late_is_not_handed_to_one_whose_time_is_over() {
    // Seen to fail: with `leave_slowly` not expiring the line first, the late one is granted the slot.
    let clock = SlowToRing(FakeClock::new());
    let gate = Gate::builder()
        .max(1)
        .timeout(Duration::from_secs(2))
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    let pass = gate.try_enter().unwrap();
    let mut late = Driven::pending(gate.enter());
    clock.0.advance(Duration::from_secs(3));
    let mut in_time = Driven::pending(gate.enter());
    drop(pass);
    assert_eq!(late.ready().unwrap_err().reason, Reason::QueueTimeout);
    drop(in_time.ready().unwrap());
}

/// A clock whose alarms have not rung yet.
#[derive(Clone)]
struct SlowToRing(Arc<FakeClock>);

impl flowgate::clock::Clock for SlowToRing {
    fn now(&self) -> flowgate::Tick {
        self.0.now()
    }

    fn wake_at(&self, _: flowgate::Tick, _: &'static dyn flowgate::clock::Alarm) {}
}

#[test]
fn g3_one_heavier_than_max_is_refused_at_once() {
    // Seen to fail: without the check of `heaviest` in `decide`, it waits for ever.
    let gate = gate(4);
    let refusal = Driven::new(gate.enter().weight(5)).poll().unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::TooHeavy);
    assert!(!refusal.is_retryable());
    assert_eq!(gate.enter().weight(5).now().unwrap_err().reason, Reason::TooHeavy);
    assert_eq!(gate.enter().weight(0).now().unwrap().weight(), 1, "nothing weighs less than one");
}

#[test]
fn g4_a_dropped_waiter_leaves_the_line_in_order() {
    // Seen to fail: with `Line::part` not relinking the one ahead, a hand-over later meets one who is gone.
    let gate = gate(1);
    let mut pass = gate.try_enter().unwrap();
    let mut line: Vec<_> = (0..9).map(|place| (place, Driven::pending(gate.enter()))).collect();
    line.retain(|(place, _)| place % 2 == 1);
    assert_eq!(gate.look().waiting, 4);
    for (_, entrant) in &mut line {
        drop(pass);
        pass = entrant.ready().unwrap();
    }
}

#[test]
fn g4_the_short_way_in_and_out_of_a_line_and_the_long_one_meet() {
    // Seen to fail: with `Desk::begin` not catching up, and with `part_first` leaving the one that handed over ahead of the next:
    // who gives up is then looked for where nobody stands.
    let gate = gate(1);
    let mut pass = gate.try_enter().unwrap();
    let mut line: Vec<_> = (0..6).map(|_| Driven::pending(gate.enter())).collect();
    drop(pass);
    pass = line.remove(0).ready().unwrap();
    // Seen and left by the long way, joined again by the short one.
    assert_eq!((gate.look().in_use, gate.look().waiting), (1, 5));
    drop(line.remove(1));
    drop(line.remove(0));
    line.push(Driven::pending(gate.enter()));
    assert_eq!(pass.standing().waiting, 4);
    for entrant in &mut line {
        drop(pass);
        pass = entrant.ready().unwrap();
    }
    assert_eq!(gate.look().waiting, 0);
    drop(pass);
    drop(gate.try_enter().unwrap());
}

#[test]
fn g2_one_too_heavy_for_a_lower_max_is_told_so_when_it_comes_to_the_head() {
    // Seen to fail: with `leave_brisk` not looking at what the next weighs, the heavy one waits, and all behind it.
    let gate = gate(2);
    let out = [gate.try_enter().unwrap(), gate.try_enter().unwrap()];
    let (mut first, mut heavy) = (Driven::pending(gate.enter()), Driven::pending(gate.enter().weight(2)));
    let mut last = Driven::pending(gate.enter());
    gate.set_limits(Limits::builder().max(1).build().unwrap());
    let [one, other] = out;
    drop(one);
    assert_eq!((first.woken(), heavy.woken()), (0, 0), "there are as many out as may be");
    drop(other);
    let first = first.ready().unwrap();
    assert_eq!(heavy.ready().unwrap_err().reason, Reason::TooHeavy);
    drop(first);
    drop(last.ready().unwrap());
}

#[test]
fn g4_dropping_one_just_handed_a_slot_passes_it_on() {
    // Seen to fail: with `cancel` of a granted waiter only forgetting it, the slot is lost and the next is never woken.
    let gate = gate(1);
    let pass = gate.try_enter().unwrap();
    let handed = Driven::pending(gate.enter());
    let mut next = Driven::pending(gate.enter());
    drop(pass);
    assert_eq!(handed.woken(), 1);
    drop(handed);
    drop(next.ready().unwrap());
    drop(gate.try_enter().unwrap());
}

#[test]
fn g4_cancelling_a_heavy_head_lets_the_light_ones_behind_it_start() {
    // Seen to fail: without the `pump` in `cancel`, the light ones wait for a release that may never come.
    let gate = gate(4);
    let out = gate.enter().weight(2).now().unwrap();
    let heavy = Driven::pending(gate.enter().weight(4));
    let mut light = [Driven::pending(gate.enter()), Driven::pending(gate.enter())];
    drop(heavy);
    let passes = light.each_mut().map(|entrant| entrant.ready().unwrap());
    drop((out, passes));
}

#[test]
fn g4_one_dropped_before_its_first_poll_leaves_no_trace() {
    // Seen to fail: with `Enter::new` asking the desk at once, the line has one more.
    let gate = gate(1);
    let pass = gate.try_enter().unwrap();
    let never_polled = gate.enter();
    assert_eq!(gate.look().waiting, 0);
    drop(never_polled);
    drop(pass);
    drop(gate.try_enter().unwrap());
}

#[test]
fn g4_two_waiters_of_one_task_are_two_waiters() {
    // Seen to fail: with `join` knowing a waiter by its waker, the second one has no place of its own: one waits, not two.
    let gate = gate(1);
    let pass = gate.try_enter().unwrap();
    let (mut one, mut other) = (Driven::pending(gate.enter()), Driven::new(gate.enter()));
    let waker = std::task::Waker::noop();
    assert!(one.poll_with(waker).is_none());
    assert!(other.poll_with(waker).is_none());
    assert_eq!(gate.look().waiting, 2);
    drop(pass);
    drop(one.poll_with(waker).unwrap().unwrap());
    drop(other.poll_with(waker).unwrap().unwrap());
}

#[test]
fn g4_a_waiter_that_moves_to_another_task_is_woken_there() {
    // Seen to fail: with `renew` keeping the first waker, the second one is never woken.
    let gate = gate(1);
    let pass = gate.try_enter().unwrap();
    let mut entrant = Driven::new(gate.enter());
    assert!(entrant.poll_with(std::task::Waker::noop()).is_none());
    assert!(entrant.poll().is_none());
    drop(pass);
    drop(entrant.ready().unwrap());
}

#[test]
fn g5_a_pass_frees_its_slot_once_however_the_work_ends() {
    // Seen to fail: with `Pass::settle` not forgetting the pass, the slot comes back twice.
    let gate = gate(1);
    let ended_well = gate.run(async { 1 });
    assert_eq!(Driven::new(ended_well).poll().unwrap().unwrap(), 1);
    gate.try_enter().unwrap().settle(flowgate::Outcome::Overloaded);
    let panicked = std::panic::catch_unwind(|| {
        let _pass = gate.try_enter().unwrap();
        panic!("work may panic");
    });
    assert!(panicked.is_err());
    let cancelled = Driven::pending(gate.run(std::future::pending::<()>()));
    assert_eq!(gate.look().in_use, 1);
    drop(cancelled);
    let _pass = gate.try_enter().unwrap();
    assert!(gate.try_enter().is_err(), "one slot, not two");
}

#[test]
fn g5_a_pass_outlives_its_gate_and_moves_between_threads() {
    // Seen to fail: with `finish_slowly` pooling a desk whose passes are still out, the exit lands in another gate's counts.
    let gate = gate(2);
    let pass = gate.try_enter().unwrap();
    drop(gate);
    let others: Vec<_> = (0..100).map(|_| Gate::builder().max(1).build().unwrap()).collect();
    let taken: Vec<_> = others.iter().map(|gate| gate.try_enter().unwrap()).collect();
    std::thread::spawn(move || drop(pass)).join().unwrap();
    for gate in &others {
        assert_eq!(gate.look().in_use, 1);
        assert!(gate.try_enter().is_err());
    }
    drop(taken);
}

#[test]
fn g5_the_work_is_gone_before_its_slot_is_free() {
    // Seen to fail: with `Scoped` dropping its pass before the work, the probe finds the slot free.
    struct Probe(Gate);
    impl Drop for Probe {
        fn drop(&mut self) {
            assert!(
                self.0.try_enter().is_err(),
                "the slot was free while the work still held on to something"
            );
        }
    }
    let gate = gate(1);
    let probe = Probe(gate.clone());
    let work = gate.run(async move {
        let _probe = probe;
        std::future::pending::<()>().await;
    });
    drop(Driven::pending(work));
    drop(gate.try_enter().unwrap());
}

#[test]
fn g1_every_await_can_be_the_last() {
    // Seen to fail: with `cancel` not settling a granted waiter, the next round finds a slot missing.
    let gate = gate(2);
    for polls in 0..6 {
        let mut pass = Some(gate.enter().weight(2).now().unwrap());
        let mut work = Driven::new(gate.run(async {
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
        }));
        for poll in 0..polls {
            if poll == 2 {
                pass.take();
            }
            if work.poll().is_some() {
                break;
            }
        }
        drop(pass);
        drop(work);
    }
    assert_eq!(gate.look().in_use, 0);
    assert_eq!(gate.look().waiting, 0);
    drop(gate.enter().weight(2).now().unwrap());
}

#[test]
fn g1_lowering_and_raising_max_keeps_every_pass_counted() {
    // Seen to fail: with `express` lending "none free" while more are out than `max`, one exit leaves one counted for three.
    let gate = gate(4);
    let mut out: Vec<_> = (0..4).map(|_| gate.try_enter().unwrap()).collect();
    gate.set_limits(Limits::builder().max(2).build().unwrap());
    for left in (2..4).rev() {
        drop(out.pop());
        assert_eq!(gate.look().in_use, left);
        assert!(gate.try_enter().is_err(), "{left} are out and max is 2");
    }
    drop(out.pop());
    out.push(gate.try_enter().unwrap());
    assert!(gate.try_enter().is_err());
}

#[test]
fn g1_one_who_stands_in_line_weighs_what_it_weighed_as_it_came() {
    // Seen to fail: with `weight` changing an entry that waits, one that was handed one slot gives five back.
    fn polled<F: Future + Unpin>(mut entry: F) -> F {
        assert!(Pin::new(&mut entry).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        entry
    }
    let gate = gate(1);
    let pass = gate.try_enter().unwrap();
    let mut entry = Driven::new(polled(gate.enter()).weight(5));
    let mut owned = Driven::new(polled(gate.enter_owned()).weight(5));
    let gives_up = polled(gate.enter()).weight(5);
    drop(pass);
    let pass = entry.poll().unwrap().unwrap();
    assert_eq!(pass.weight(), 1);
    drop(pass);
    let pass = owned.poll().unwrap().unwrap();
    assert_eq!(pass.weight(), 1);
    drop(pass);
    drop(gives_up);
    let _only = gate.try_enter().unwrap();
    assert!(gate.try_enter().is_err(), "there is one slot");
}
