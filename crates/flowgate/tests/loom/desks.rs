//! A desk and its gate: going, closing, and being looked at meanwhile.

use std::{sync::Arc, time::Duration};

use flowgate::{Gate, Reason, gate::Drained};
use flowgate_testkit::{Driven, FakeClock};
use loom::thread;

use crate::kit::{answer, aside, entrant, gate, is_at_rest, model, timed, waiting};

#[test]
fn g5_the_last_handle_and_the_last_pass_go_at_once() {
    // Seen to fail: with `Desk::finish_slowly` not minding `in_use`, an old pass comes back at the new gate.
    model(|| {
        let clock = FakeClock::new();
        let old = Gate::builder().max(2).clock(Arc::clone(&clock) as _).build().unwrap();
        let passes = (old.try_enter().unwrap(), old.try_enter().unwrap());
        let holders = (thread::spawn(move || drop(passes.0)), thread::spawn(move || drop(passes.1)));
        drop(old);
        // It may serve at the old gate's desk already.
        let new = gate(1);
        let pass = new.try_enter().unwrap();
        holders.0.join().unwrap();
        holders.1.join().unwrap();
        assert_eq!(Arc::strong_count(&clock), 1, "nothing is left of the old gate");
        assert_eq!(new.look().in_use, 1, "and none of its passes came back here");
        drop(pass);
        is_at_rest(&new, 1);
    });
}

#[test]
fn g5_a_desk_serves_one_gate_at_a_time() {
    // Seen to fail: with `Desk::finish_slowly` not asking for an owner, a late alarm puts the desk into the pool again, and
    // two gates share one slot.
    model(|| {
        let clock = FakeClock::new();
        let old = timed(&clock);
        let pass = old.try_enter().unwrap();
        drop(waiting(&old));
        let holder = thread::spawn(move || drop(pass));
        // An alarm that is still set rings at a desk that goes, or is gone.
        let ringer = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        drop(old);
        holder.join().unwrap();
        ringer.join().unwrap();
        let new = (gate(1), gate(1));
        let _passes = (new.0.try_enter().unwrap(), new.1.try_enter().unwrap());
    });
}

#[test]
fn g10_everyone_at_a_closing_gate_gets_an_answer() {
    // Seen to fail: without `wake_closers` in `Desk::arm`, the one who waits for the drain is not woken.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let closer = aside(&gate, |gate| {
            let mut closing = Driven::new(gate.close(Duration::from_secs(60)));
            (closing.poll(), closing)
        });
        let holder = thread::spawn(move || drop(pass));
        let mut entrant = entrant(&gate);
        let seen = entrant.poll();
        holder.join().unwrap();
        let (drained, mut closing) = closer.join().unwrap();
        match answer(seen, entrant) {
            Ok(pass) => drop(pass),
            Err(refusal) => assert_eq!(refusal.reason, Reason::Closed),
        }
        let drained: Drained = drained.unwrap_or_else(|| closing.ready());
        assert!(drained.is_clean());
        assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Closed);
        assert_eq!(gate.look().in_use, 0);
    });
}

#[test]
fn g13_a_look_sees_what_is_out() {
    // Seen to fail: with `Desk::fetch` leaving `State::in_use` as it was, a look sees nobody.
    model(|| {
        let gate = gate(2);
        let kept = gate.try_enter().unwrap();
        let visitor = aside(&gate, |gate| drop(gate.try_enter().unwrap()));
        let looker = aside(&gate, |gate| gate.look());
        for look in [gate.look(), looker.join().unwrap()] {
            assert!((1..=2).contains(&look.in_use), "{} are out", look.in_use);
            assert_eq!(look.waiting, 0);
        }
        visitor.join().unwrap();
        assert_eq!(gate.look().in_use, 1);
        drop(kept);
        is_at_rest(&gate, 2);
    });
}
