//! Lanes that come and go, and the room for them that moves between desks.

use std::{
    sync::Arc,
    task::{Wake, Waker},
};

use flowgate::{Gate, KeyedGate, Pass, Reason};
use flowgate_testkit::{Driven, FakeClock};
use loom::thread;

use crate::kit::{Room, keyed, limits, model};

#[test]
fn g7_a_lane_goes_while_its_key_comes_back() {
    // Seen to fail: with `State::leave` not asking whether somebody waits, the waiter is not woken.
    model(|| {
        let (gate, room) = (keyed(1, 1), Room::new(1));
        let pass = gate.try_enter_key("a").unwrap();
        room.go_in();
        let holder = thread::spawn({
            let (gate, room) = (gate.clone(), Arc::clone(&room));
            move || {
                room.note();
                room.go_out(pass);
                gate.try_enter_key("a").map(|pass| room.work(pass)).is_ok()
            }
        });
        let mut entrant = Driven::new(gate.enter_key("a"));
        let seen = entrant.poll().map(|answer| room.work(answer.unwrap()));
        let came_back = holder.join().unwrap();
        if seen.is_none() {
            room.work(entrant.ready().unwrap());
        }
        assert_eq!(room.done(), 2 + u32::from(came_back));
        assert_eq!(gate.look().lanes, 0);
    });
}

#[test]
fn g4_one_who_gives_up_while_its_lane_hands_it_a_slot_leaves_it_to_the_next() {
    // Seen to fail: with `State::fate` taking one who is not in line any more, and was not told yet, for one who waits.
    model(|| {
        let gate = keyed(1, 1);
        let pass = gate.try_enter_key("a").unwrap();
        let mut gives_up = Driven::pending(gate.enter_key("a"));
        let mut next = Driven::pending(gate.enter_key("a"));
        let holder = thread::spawn(move || drop(pass));
        // With or without having seen it.
        let seen = gives_up.poll();
        drop(gives_up);
        drop(seen);
        holder.join().unwrap();
        drop(next.ready().unwrap());
        let look = gate.look();
        assert_eq!((look.in_use, look.waiting, look.lanes), (0, 0, 0));
    });
}

/// Three keys over two desks, each in each part: one desk serves two of them, and the other the third.
const PARTS: [[&str; 3]; 3] = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]];

/// Takes all the room for lanes to the desks of these keys.
fn warm(gate: KeyedGate, keys: &[&str]) -> KeyedGate {
    let passes: Vec<Pass> = keys.iter().map(|key| gate.try_enter_key(key).unwrap()).collect();
    drop(passes);
    gate
}

/// Goes in and out on another thread, and must not be refused.
fn visit(gate: &KeyedGate, key: &'static str) -> thread::JoinHandle<()> {
    let gate = gate.clone();
    thread::spawn(move || drop(gate.try_enter_key(key).expect("there is room for its lane")))
}

#[track_caller]
fn has_room_for_two(gate: &KeyedGate) {
    assert_eq!(gate.look().lanes, 0);
    for [one, two, three] in PARTS {
        let _both = [one, two].map(|key| gate.try_enter_key(key).unwrap());
        assert_eq!(gate.try_enter_key(three).unwrap_err().reason, Reason::KeysFull);
    }
}

#[test]
fn g7_room_on_its_way_between_desks_is_not_missed() {
    // Seen to fail: without the lock in `Engine::make_room`, a key is refused while another brings room for two lanes.
    for [one, two, three] in PARTS {
        model(move || {
            let gate = warm(keyed(1, 2), &[one, two]);
            let visits = [visit(&gate, one), visit(&gate, three)];
            visits.into_iter().for_each(|visit| visit.join().unwrap());
            has_room_for_two(&gate);
        });
    }
}

#[test]
fn g7_two_of_one_new_key_need_room_for_one_lane() {
    // Seen to fail: without the lock in `Engine::make_room`, the second is refused while the first brings room.
    for [one, two, three] in PARTS {
        model(move || {
            let gate = warm(keyed(2, 2), &[one, two]);
            let kept = gate.try_enter_key(one).unwrap();
            let visits = [visit(&gate, three), visit(&gate, three)];
            visits.into_iter().for_each(|visit| visit.join().unwrap());
            drop(kept);
            has_room_for_two(&gate);
        });
    }
}

#[test]
fn g7_a_new_key_is_refused_only_if_all_lanes_are_in_use_at_once() {
    // Seen to fail: without `Desk::take_room` in `Quota::find`, a lane that goes while another comes is missed.
    // Four desks, and one of these keys at each.
    for [from, to, new] in [["a", "b", "c"], ["b", "c", "f"], ["c", "f", "a"], ["f", "a", "b"]] {
        model(move || {
            let gate = keyed(1, 4);
            let _kept = ["k", "l"].map(|key| gate.try_enter_key(key).unwrap());
            let gate = warm(gate, &[to]);
            let pass = gate.try_enter_key(from).unwrap();
            // At each moment three lanes are in use at the most, though never the same ones.
            let mover = thread::spawn({
                let gate = gate.clone();
                move || {
                    drop(pass);
                    gate.try_enter_key(to).map(drop)
                }
            });
            drop(gate.try_enter_key(new).expect("there is room for its lane"));
            mover.join().unwrap().unwrap();
        });
    }
}

#[test]
fn g7_a_lane_in_use_is_not_forgotten_for_a_new_key() {
    // Seen to fail: with `State::least_recently_used` not asking whether the lane is idle, both are in at once.
    model(|| {
        let builder = Gate::builder().max(1).rate(9, "1m").clock(FakeClock::new()).keyed();
        let (gate, room) = (warm(builder.max_keys(1).build().unwrap(), &["a"]), Room::new(1));
        // The lane of `a` is idle and remembers a start; it is used again while `b` wants its place.
        let enter = |key: &'static str| {
            let (gate, room) = (gate.clone(), Arc::clone(&room));
            move || gate.try_enter_key(key).map(|pass| room.work(pass)).map_err(|refusal| refusal.reason)
        };
        let again = thread::spawn(enter("a"));
        let answers = [enter("b")(), again.join().unwrap()];
        assert!(answers.iter().any(Result::is_ok));
        assert!(answers.iter().all(|answer| matches!(answer, Ok(()) | Err(Reason::KeysFull))));
        assert_eq!(room.done(), answers.iter().flatten().count() as u32);
        let look = gate.look();
        assert_eq!((look.in_use, look.lanes), (0, 1));
    });
}

/// One who is woken, and asks for a lane of its own at once.
struct Asks(KeyedGate);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_enter_key("b");
    }
}

#[test]
fn g8_one_whom_a_pin_lets_in_may_ask_for_another_lane_at_once() {
    // Seen to fail: with `Engine::make_room` waking under the lock of room that moves, one who needs room waits for itself.
    model(|| {
        let gate = keyed(1, 1);
        let other = gate.try_enter_key("other").unwrap();
        // There is no room for its lane as it looks first, and as it looks again the lane may be there, and somebody waits in it.
        let operator = thread::spawn({
            let gate = gate.clone();
            move || gate.pin("a", limits(2)).unwrap()
        });
        drop(other);
        let mut pass = gate.try_enter_key("a").ok();
        assert!(pass.is_some());
        let mut entrant = Driven::new(gate.enter_key("a"));
        let seen = entrant.poll_with(&Waker::from(Arc::new(Asks(gate.clone()))));
        if !operator.join().unwrap() {
            // It came too early.
            pass.take();
        }
        let answer = seen.or_else(|| entrant.poll()).expect("there is a slot");
        drop((pass, answer.unwrap()));
    });
}
