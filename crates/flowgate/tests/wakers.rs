//! G2 order, G5 settle, G8 live limits, G11 events, where a waker panics, or is up to something else: its owner
//! may feel it, and nobody else.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    future::Future,
    sync::{Arc, Mutex, mpsc},
    task::{Wake, Waker},
    thread,
    time::Duration,
};

use flowgate::{
    Gate, Limits, Outcome, Pass, Reason,
    gate::{Event, Listener, What},
};
use flowgate_testkit::{Driven, FakeClock, asking};

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("wakers may panic");
    }
}

/// One who waits, and whose waker will panic.
#[track_caller]
fn panicking<'a, T>(future: impl Future<Output = T> + 'a) -> Driven<'a, T> {
    let mut driven = Driven::new(future);
    assert!(driven.poll_with(&Waker::from(Arc::new(Panics))).is_none());
    driven
}

#[test]
fn g2_a_waker_that_panics_keeps_nobody_else_asleep() {
    // Seen to fail: without `catch_unwind` in `wakes.rs`, the change panics and the second in line is never woken.
    let clock = FakeClock::new();
    let timeout = Duration::from_secs(1);
    let gate = Gate::builder().max(1).timeout(timeout).clock(clock.clone()).build().unwrap();
    let pass = gate.try_enter().unwrap();
    let mut panics = panicking(gate.enter());
    let mut next = Driven::pending(gate.enter());
    gate.set_limits(Limits::builder().max(3).timeout(timeout).build().unwrap());
    let passes = (panics.poll().unwrap().unwrap(), next.ready().unwrap());
    let mut panics = panicking(gate.enter());
    let mut next = Driven::pending(gate.enter());
    clock.advance(timeout);
    for refused in [panics.poll().unwrap(), next.ready()] {
        assert_eq!(refused.unwrap_err().reason, Reason::QueueTimeout);
    }
    drop((pass, passes));
}

#[test]
fn g5_a_pass_whose_successors_waker_panics_frees_its_slot_once() {
    // Seen to fail: without `catch_unwind` in `wakes.rs`, `settle` unwinds, the pass is dropped by that, and its slot comes
    // back a second time.
    let gate = Gate::builder().max(1).build().unwrap();
    let pass = gate.try_enter().unwrap();
    let mut panics = panicking(gate.enter());
    pass.settle(Outcome::Done);
    assert!(gate.try_enter().is_err(), "the slot is the next one's");
    let pass = panics.poll().unwrap().unwrap();
    let mut panics = panicking(gate.enter());
    drop(pass);
    assert_eq!(gate.look().in_use, 1);
    drop(panics.poll().unwrap().unwrap());
    assert_eq!(gate.look().in_use, 0);
}

/// A waker that does nothing but to panic when the last of it is dropped.
struct DropPanics;

impl Wake for DropPanics {
    fn wake(self: Arc<Self>) {}
}

impl Drop for DropPanics {
    fn drop(&mut self) {
        panic!("so may what drops them");
    }
}

#[test]
fn g5_a_waker_whose_drop_panics_is_felt_by_nobody() {
    // Seen to fail: without `catch_unwind` around what is spent in `wakes.rs`, the poll and the drop below panic.
    let gate = Gate::builder().max(1).build().unwrap();
    let pass = gate.try_enter().unwrap();
    let waits = || {
        let mut driven = Driven::new(gate.enter());
        assert!(driven.poll_with(&Waker::from(Arc::new(DropPanics))).is_none());
        driven
    };
    let (mut polled_anew, gives_up) = (waits(), waits());
    assert!(polled_anew.poll().is_none());
    drop(gives_up);
    assert_eq!(gate.look().waiting, 1);
    drop(pass);
    drop(polled_anew.ready().unwrap());
    assert_eq!((gate.look().in_use, gate.look().waiting), (0, 0));
}

#[test]
fn g8_a_change_reaches_every_key_whatever_wakers_do() {
    // Seen to fail: without `catch_unwind` in `wakes.rs`, the first desk's waker ends the change there.
    let gate = Gate::builder().max(1).keyed().max_keys(100_000).build().unwrap();
    let names: Vec<_> = (0..200).map(|n| format!("tenant-{n}")).collect();
    let _first: Vec<_> = names.iter().map(|name| gate.try_enter_key(name).unwrap()).collect();
    let mut line: Vec<_> = names.iter().map(|name| panicking(gate.enter_key(name))).collect();
    gate.set_limits(Limits::builder().max(2).build().unwrap()).unwrap();
    let second: Vec<_> = line.iter_mut().map(|entrant| entrant.poll().unwrap().unwrap()).collect();
    assert_eq!(gate.look().in_use, 400);
    drop(second);
}

#[test]
fn g11_a_subscriber_whose_waker_panics_is_counted_and_loses_no_slot() {
    // Seen to fail: without `call` around `Mailbox::post`, the pass unwinds while it tells of its end, before its slot is free.
    let gate = Gate::builder().max(1).build().unwrap();
    let pass = {
        let mut events = gate.subscribe();
        let mut before = panicking(events.next());
        let pass = gate.try_enter().unwrap();
        assert!(before.poll().is_some(), "told all the same");
        drop(before);
        let mut after = panicking(events.next());
        drop(pass);
        assert!(after.poll().is_some());
        gate.try_enter()
    };
    assert_eq!((pass.is_ok(), gate.look().listener_panics), (true, 2));
}

#[test]
fn g8_who_is_woken_by_a_change_may_ask_the_gate_at_once() {
    // Seen to fail: with wakers woken while the lock of such changes was held, one that ran its task in place waited for itself.
    let gate = Gate::builder().max(1).build().unwrap();
    let _pass = gate.try_enter().unwrap();
    let asked = gate.clone();
    let (waker, answers) = asking(move || _ = asked.limits());
    let changes: [&dyn Fn(); 3] =
        [&|| gate.set_limits(Limits::builder().max(2).build().unwrap()), &|| gate.resume(), &|| {
            drop(gate.close(Duration::ZERO));
        }];
    for change in changes {
        let mut waits = Driven::new(gate.enter());
        assert!(waits.poll_with(&waker).is_none());
        change();
        assert_eq!(answers.try_recv(), Ok(true));
        drop(waits.poll().unwrap());
        gate.pause();
    }
}

#[test]
fn g8_who_awaits_a_drain_that_a_change_ends_may_ask_the_gate_at_once() {
    // Seen to fail: with those who await the drain told as the desk is put in order, under the lock of such changes.
    let clock = FakeClock::new();
    let gate = Gate::builder().max(1).clock(clock.clone()).build().unwrap();
    gate.pause();
    let mut waits = Driven::pending(gate.enter());
    let asked = gate.clone();
    let (waker, answers) = asking(move || _ = asked.limits());
    let mut closing = Driven::new(gate.close(Duration::from_secs(3_600)));
    assert!(closing.poll_with(&waker).is_none());
    clock.advance(Duration::from_secs(2));
    gate.set_limits(Limits::builder().max(1).timeout(Duration::from_secs(1)).build().unwrap());
    assert_eq!(waits.ready().unwrap_err().reason, Reason::QueueTimeout);
    assert_eq!(answers.try_recv(), Ok(true));
}

#[test]
fn g11_a_subscriber_that_is_woken_may_subscribe_again_at_once() {
    // Seen to fail: with subscribers woken while their list was locked, one that ran its task in place waited for itself.
    let gate = Gate::builder().max(1).build().unwrap();
    let asked = gate.clone();
    let (waker, answers) = asking(move || drop(asked.subscribe()));
    let mut events = gate.subscribe();
    assert!(Driven::new(events.next()).poll_with(&waker).is_none());
    let _pass = gate.try_enter().unwrap();
    assert_eq!(answers.try_recv(), Ok(true));
}

/// A waker of a task that holds a pass.
struct Holds(#[expect(dead_code, reason = "it is there to be dropped")] Pass);

impl Wake for Holds {
    fn wake(self: Arc<Self>) {}
}

/// Does it on another thread, so that one who waits for itself is found out.
fn within_reason(work: impl FnOnce() + Send + 'static) {
    let (says, heard) = mpsc::channel();
    thread::spawn(move || {
        work();
        says.send(())
    });
    heard.recv_timeout(Duration::from_secs(10)).expect("it waits for itself, or has panicked");
}

#[test]
fn g11_with_a_subscribers_waker_its_task_may_go_and_a_pass_with_that() {
    // Seen to fail: with the former waker dropped under the lock of the mailbox, the pass waits for that as it tells of its end.
    within_reason(|| {
        let gate = Gate::builder().max(1).build().unwrap();
        let mut events = gate.subscribe();
        let pass = gate.try_enter().unwrap();
        assert!(events.try_next().is_some());
        let mut next = Driven::new(events.next());
        assert!(next.poll_with(&Waker::from(Arc::new(Holds(pass)))).is_none());
        assert!(next.poll().is_none());
        assert!(matches!(next.ready().unwrap().what, What::Released { .. }));
        assert_eq!(gate.look().in_use, 0);
    });
}

/// One who is asked for times, and subscribes first.
#[derive(Default)]
struct Subscribes(Mutex<Option<Gate>>);

impl Listener for Subscribes {
    fn on_event(&self, _: &Event<'_>) {}

    fn wants_times(&self) -> bool {
        let gate = self.0.lock().unwrap().take();
        gate.is_none_or(|gate| {
            drop(gate.subscribe());
            false
        })
    }
}

#[test]
fn g11_a_listener_that_is_asked_for_times_may_subscribe_at_once() {
    // Seen to fail: with listeners asked while the list of subscribers was locked, one that subscribed waited for itself.
    within_reason(|| {
        let listener = Arc::new(Subscribes::default());
        let gate = Gate::builder().max(1).listener(Arc::clone(&listener)).build().unwrap();
        drop(gate.subscribe());
        *listener.0.lock().unwrap() = Some(gate.clone());
        // That a subscriber left is noticed now, so the listener is asked again.
        drop(gate.try_enter().unwrap());
        assert!(listener.0.lock().unwrap().is_none());
        assert_eq!(gate.look().listener_panics, 0);
    });
}
