//! Whether an exchange costs as much however many wait before it: all join the line of a route with one slot, and go through
//! one by one.
//!
//! The futures are polled by hand, so that no executor is measured.

use std::{
    pin::Pin,
    task::{Context as TaskContext, Poll, Waker},
};

use flowgate::route::{Concurrency, Context, Error, Route, direct};
use flowgate_testkit::cpu_time;
use tokio::sync::Semaphore;

use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
const FLAT: &str = "queued: 1,000,000 beside 1,000";
const GOAL: f64 = 2.0;

pub(crate) fn run(suite: &mut Suite) {
    if !suite.wants(FLAT) {
        return;
    }
    let many = if suite.is_quick() { MANY / 10 } else { MANY };
    let [many, few] = measure::in_turn(suite.plan().at_most(5).rounds, |side| match side {
        0 => line(many, 1),
        _ => line(FEW, 1_000),
    });
    let question = Question::new(FLAT, "ns").against("ours with 1,000 queued").goal(Goal::at_most(GOAL));
    suite.add(question.beside(many, few));
}

/// Nanoseconds for each exchange of a line of so many, so many times over.
fn line(count: usize, times: usize) -> f64 {
    static OPEN: Semaphore = Semaphore::const_new(0);
    let context = Context::new();
    let wait = |body: u64| async move {
        let _open = OPEN.acquire().await.map_err(Error::of)?;
        Ok::<_, Error>(body)
    };
    let route = Route::new("line").concurrency(Concurrency::max(1)).from(direct()).to(wait).build();
    let route = route.expect("the options are right");
    context.add(&route).expect("the context is new");
    context.start().expect("nothing is wrong with it");
    let handle = context.direct::<u64, u64>("line").expect("it is there");
    let mut cx = TaskContext::from_waker(Waker::noop());
    let start = cpu_time();
    for _ in 0..times {
        let mut calls: Vec<Pin<Box<_>>> = (0..count as u64).map(|body| Box::pin(handle.call(body))).collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut cx).is_pending(), "all wait, for a slot or for the work");
        }
        OPEN.add_permits(1);
        for call in &mut calls {
            let Poll::Ready(settled) = call.as_mut().poll(&mut cx) else { panic!("its turn has come") };
            settled.expect("nothing is in its way");
        }
        OPEN.forget_permits(1);
    }
    (cpu_time() - start).as_nanos() as f64 / (count * times) as f64
}
