//! Limits that change, and pauses, while slots come and go.

use std::sync::{Arc, atomic::Ordering};

use flowgate::{Limits, Reason};
use loom::thread;

use crate::kit::{Room, answer, aside, entrant, gate, is_at_rest, limits, model, waiting};

#[test]
fn g8_raising_max_while_one_joins_lets_it_in() {
    // Seen to fail: without `pump_all` in `State::relimit`, one who joined just before is not woken.
    model(|| {
        let (gate, room) = (gate(1), Room::new(2));
        let pass = gate.try_enter().unwrap();
        room.go_in();
        let operator = aside(&gate, |gate| gate.set_limits(limits(2)));
        let mut entrant = entrant(&gate);
        let seen = entrant.poll();
        operator.join().unwrap();
        room.work(answer(seen, entrant).unwrap());
        room.go_out(pass);
        is_at_rest(&gate, 2);
    });
}

#[test]
fn g8_nobody_is_refused_by_the_new_limits_while_the_old_ones_count() {
    // Seen to fail: with `set_limits` noting first that nobody waits from now on, one who found the old `max` in use was refused.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let operator =
            aside(&gate, |gate| gate.set_limits(Limits::builder().max(2).reject().build().unwrap()));
        let mut entrant = entrant(&gate);
        let seen = entrant.poll();
        operator.join().unwrap();
        drop((pass, answer(seen, entrant).unwrap()));
        is_at_rest(&gate, 2);
    });
}

#[test]
fn g8_raising_max_while_slots_come_and_go_makes_one_slot() {
    // Seen to fail: with `Express::fetch_slots` a load and then a store, a slot that comes back in between is lost.
    model(|| {
        let (gate, room) = (gate(1), Room::new(2));
        let operator = aside(&gate, |gate| gate.set_limits(limits(2)));
        let other = aside(&gate, {
            let room = Arc::clone(&room);
            move |gate| {
                if let Ok(pass) = gate.try_enter() {
                    room.go_in();
                    room.go_out(pass);
                }
            }
        });
        let mut entrant = entrant(&gate);
        let seen = entrant.poll().inspect(|_| room.go_in());
        operator.join().unwrap();
        other.join().unwrap();
        drop(answer(seen, entrant).unwrap());
        is_at_rest(&gate, 2);
    });
}

#[test]
fn g8_lowering_max_while_a_slot_is_handed_over_loses_nobody() {
    // Seen to fail: with `State::express` saying zero where more than `max` are in use, a newcomer is let in.
    model(|| {
        let (gate, room) = (gate(2), Room::new(2));
        let (one, two) = (gate.try_enter().unwrap(), gate.try_enter().unwrap());
        room.go_in();
        room.go_in();
        let operator = aside(&gate, |gate| gate.set_limits(limits(1)));
        let holder = thread::spawn({
            let room = Arc::clone(&room);
            move || room.go_out(one)
        });
        let mut entrant = entrant(&gate);
        let seen = entrant.poll().inspect(|_| room.go_in());
        operator.join().unwrap();
        holder.join().unwrap();
        room.go_out(two);
        let pass = answer(seen, entrant).unwrap();
        assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Busy, "there is one slot now");
        drop(pass);
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g8_a_lower_max_holds_as_soon_as_passes_come_back() {
    // Seen to fail: with `Lane::hands_over` asking for `max` in use or more, a pass too many is handed over.
    model(|| {
        let (gate, room) = (gate(2), Room::new(2));
        let passes = [(); 2].map(|()| gate.try_enter().unwrap());
        let mut entrant = waiting(&gate);
        gate.set_limits(limits(1));
        let holders = passes.map(|pass| {
            let room = Arc::clone(&room);
            room.go_in();
            thread::spawn(move || room.go_out(pass))
        });
        let in_at_first = entrant.poll().map(|pass| (pass, room.inside.load(Ordering::SeqCst)));
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        match in_at_first {
            Some((pass, others)) => assert_eq!((others, pass.map(drop)), (0, Ok(()))),
            None => drop(entrant.ready().unwrap()),
        }
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g8_a_pause_that_ends_while_one_joins_keeps_nobody() {
    // Seen to fail: without `pump_all` in `State::resume`, one who joined during the pause is not woken.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let operator = aside(&gate, |gate| {
            gate.pause();
            gate.resume();
        });
        let holder = thread::spawn(move || drop(pass));
        let mut entrant = entrant(&gate);
        let seen = entrant.poll();
        operator.join().unwrap();
        holder.join().unwrap();
        drop(answer(seen, entrant).unwrap());
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g8_nobody_starts_once_a_pause_has_begun() {
    // Seen to fail: with `State::pump` not asking for the pause, a slot that comes back during it is handed over.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let mut entrant = waiting(&gate);
        let holder = thread::spawn(move || drop(pass));
        gate.pause();
        let started = entrant.poll();
        holder.join().unwrap();
        if started.is_none() {
            assert!(entrant.poll().is_none());
            assert!(gate.try_enter().is_err());
            gate.resume();
        }
        drop(answer(started, entrant).unwrap());
        gate.resume();
        is_at_rest(&gate, 1);
    });
}
