//! One slot after the other: the express lane is a lock, the line is in order, and who gives up loses no slot.

use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Duration,
};

use flowgate::Reason;
use flowgate_testkit::FakeClock;
use loom::thread;

use crate::kit::{Bell, Room, answer, aside, entrant, gate, is_at_rest, model, timed, waiting};

#[test]
fn g1_one_slot_on_the_express_lane_is_a_lock() {
    // Seen to fail: with `Express::take` succeeding `Relaxed`, the second to enter does not see what the first did.
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
    // Seen to fail: with `Seat::decide` storing the verdict `Relaxed`, the waiter does not see what the holder did.
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

#[test]
fn g2_a_newcomer_cannot_overtake_during_a_hand_over() {
    // Seen to fail: with `State::express` and `Desk::finish` not asking whether somebody waits, the slot goes out on the
    // express lane and the waiter is not woken.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let mut first = waiting(&gate);
        let holder = thread::spawn(move || drop(pass));
        let newcomer = gate.try_enter();
        assert_eq!(newcomer.unwrap_err().reason, Reason::Busy, "the slot is the waiter's own");
        holder.join().unwrap();
        drop(first.ready().unwrap());
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g2_two_who_join_get_the_two_slots_given_back() {
    // Seen to fail: with `Express::fetch_slots` loading instead of swapping, a waiter is not woken.
    model(|| {
        let (gate, room) = (gate(2), Room::new(2));
        let (one, two) = (gate.try_enter().unwrap(), gate.try_enter().unwrap());
        room.go_in();
        room.go_in();
        let holder = thread::spawn({
            let room = Arc::clone(&room);
            move || room.go_out(one)
        });
        let other = aside(&gate, {
            let room = Arc::clone(&room);
            move |gate| {
                let mut entrant = entrant(gate);
                (entrant.poll().inspect(|_| room.go_in()), entrant)
            }
        });
        let mut mine = entrant(&gate);
        let seen = mine.poll().inspect(|_| room.go_in());
        room.go_out(two);
        holder.join().unwrap();
        let (others, other) = other.join().unwrap();
        let passes = (answer(seen, mine).unwrap(), answer(others, other).unwrap());
        assert_eq!(gate.try_enter().unwrap_err().reason, Reason::Busy);
        drop(passes);
        is_at_rest(&gate, 2);
    });
}

#[test]
fn g2_who_waits_with_another_waker_is_woken_by_that_one() {
    // Seen to fail: with `Enter::look_up` going by what it read before `renew`, only the old waker was woken.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let mut entrant = waiting(&gate);
        let holder = thread::spawn(move || drop(pass));
        let bell = Arc::new(Bell::default());
        let seen = entrant.poll_with(&Waker::from(Arc::clone(&bell)));
        holder.join().unwrap();
        let is_woken = bell.0.load(Ordering::SeqCst) > 0;
        assert!(seen.is_some() || is_woken, "the slot was handed over and nobody was told");
        drop(seen.or_else(|| entrant.poll()).unwrap());
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g3_one_whose_time_is_over_while_a_slot_comes_has_one_answer() {
    // Seen to fail: with `State::refuse` calling `part` instead of `dismiss`, one whose time is over is not woken.
    model(|| {
        let clock = FakeClock::new();
        let gate = timed(&clock);
        let pass = gate.try_enter().unwrap();
        let mut entrant = waiting(&gate);
        let holder = thread::spawn(move || drop(pass));
        clock.advance(Duration::from_secs(1));
        holder.join().unwrap();
        match entrant.ready() {
            Ok(pass) => drop(pass),
            Err(refusal) => assert_eq!(refusal.reason, Reason::QueueTimeout),
        }
        assert_eq!(entrant.woken(), 1);
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g4_one_who_gives_up_while_it_is_handed_a_slot_loses_none() {
    // Seen to fail: with `State::cancel` not calling `leave` for one that was granted, its slot stays in use for good.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let gives_up = waiting(&gate);
        let holder = thread::spawn(move || drop(pass));
        drop(gives_up);
        assert!(gate.look().waiting == 0);
        holder.join().unwrap();
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g4_the_slot_of_one_who_gives_up_goes_to_the_next() {
    // Seen to fail: with `Seat::fate` loading the verdict `Relaxed`, the next does not see what the holder did.
    model(|| {
        let (gate, room) = (gate(1), Room::new(1));
        let pass = gate.try_enter().unwrap();
        room.go_in();
        let (gives_up, mut next) = (waiting(&gate), waiting(&gate));
        let holder = thread::spawn({
            let room = Arc::clone(&room);
            move || {
                room.note();
                room.go_out(pass);
            }
        });
        drop(gives_up);
        let seen = next.poll();
        if seen.is_none() {
            holder.join().unwrap();
        }
        room.work(answer(seen, next).unwrap());
        assert_eq!(room.done(), 2);
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g4_one_behind_others_gives_up_while_its_turn_comes() {
    // Seen to fail: with `State::cancel_brisk` not asking for the fate, one that was granted its slot is taken out of
    // the line again.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let [mut head, gives_up, mut last] = [(); 3].map(|()| waiting(&gate));
        let others = thread::spawn(move || {
            drop(pass);
            drop(head.ready().unwrap());
        });
        drop(gives_up);
        others.join().unwrap();
        drop(last.ready().unwrap());
        is_at_rest(&gate, 1);
    });
}

#[test]
fn g4_giving_up_at_any_point_leaves_the_slot_to_one_who_joins() {
    // Seen to fail: with `Enter::give_up` doing nothing once its seat is granted, the next is not woken.
    model(|| {
        let gate = gate(1);
        let pass = gate.try_enter().unwrap();
        let holder = thread::spawn(move || drop(pass));
        // Before, during or after the hand-over; with or without having seen it.
        let gives_up = aside(&gate, |gate| {
            let mut entrant = entrant(gate);
            drop(entrant.poll());
        });
        let mut next = entrant(&gate);
        let seen = next.poll();
        holder.join().unwrap();
        gives_up.join().unwrap();
        drop(answer(seen, next).unwrap());
        is_at_rest(&gate, 1);
    });
}
