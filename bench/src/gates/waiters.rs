//! A long line: all join, every second one gives up, the rest go in one by one and in order.
//!
//! The futures are made before the clock starts, and polled by hand, so that no executor is measured. Time is told in
//! milliseconds for all of it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use flowgate::Gate;
use tokio::sync::Semaphore;

use super::door::Door;
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

const FEW: usize = 100_000;
const MANY: usize = 1_000_000;
const LINEAR: &str = "waiters: 1,000,000 in line, half cancelled, drained";
const BESIDE_FEW: &str = "waiters: 100,000 beside tokio";
const BESIDE_MANY: &str = "waiters: 1,000,000 beside tokio";
const PEER: &str = "tokio acquire_owned";

pub(crate) fn run(suite: &mut Suite) {
    if !suite.wants_any(&[LINEAR, BESIDE_FEW, BESIDE_MANY]) {
        return;
    }
    let gate = Gate::builder().max(1).build().expect("the options are right");
    let semaphore = Arc::new(Semaphore::new(1));
    let millis = |took: Duration| took.as_secs_f64() * 1_000.0;
    let [many, few, peer_many, peer_few] = measure::in_turn(suite.plan().at_most(5).rounds, |side| {
        millis(match side {
            0 => line(&gate, MANY),
            1 => line(&gate, FEW),
            2 => line(&semaphore, MANY),
            _ => line(&semaphore, FEW),
        })
    });
    let linear = Question::new(LINEAR, "ms").against("ours with 100,000").goal(Goal::at_most(12.0));
    suite.add(linear.beside(many, few));
    suite.add(Question::new(BESIDE_FEW, "ms").against(PEER).beside(few, peer_few));
    suite.add(Question::new(BESIDE_MANY, "ms").against(PEER).beside(many, peer_many));
}

fn line(door: &impl Door, count: usize) -> Duration {
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(door.pass());
    let Poll::Ready(first) = first.as_mut().poll(&mut cx) else {
        panic!("nobody is in the way of the first")
    };
    let mut line: Vec<Option<Pin<Box<_>>>> = (0..count).map(|_| Some(Box::pin(door.pass()))).collect();

    let start = Instant::now();
    for waiter in line.iter_mut().flatten() {
        assert!(waiter.as_mut().poll(&mut cx).is_pending(), "all but one wait");
    }
    for place in line.iter_mut().step_by(2) {
        *place = None;
    }
    drop(first);
    for place in &mut line {
        if let Some(mut waiter) = place.take() {
            assert!(waiter.as_mut().poll(&mut cx).is_ready(), "it is its turn");
        }
    }
    start.elapsed()
}
