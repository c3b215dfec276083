//! R5: cancelled at every await, by a caller, by a timeout, by a panic; and re-entry.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use flowgate::{
    Gate, Reason,
    route::{
        BoxError, CircuitBreaker, Concurrency, Cx, Direct, Door, Error, Exchange, Failure, Outcome, Retry,
        Route, Step, Throttle, direct, direct_to,
    },
};
use flowgate_testkit::Driven;
use proptest::prelude::*;

use crate::kit::{MS, Stage, Work, code, message, tenant};

/// A route with everything in it: each await that there is.
fn everything(work: &Work, tap: &Work) -> Route<String, usize> {
    Route::new("everything")
        .error(|failure: Failure| async move { Err::<usize, Error>(failure.error) })
        .delay(MS)
        .throttle(Throttle::rate(2, "1s"))
        .circuit_breaker(CircuitBreaker::new().failure_threshold(2).cooldown(20 * MS))
        .retry(Retry::new().max_attempts(3).backoff(5 * MS))
        .timeout(50 * MS)
        .concurrency(Concurrency::max(2).label("all"))
        .concurrency(Concurrency::max(1).label("each").key(tenant))
        .from(direct())
        .tap(tap.step::<String>())
        .retry(Retry::new().max_attempts(2).backoff(3 * MS))
        .timeout(30 * MS)
        .throttle(Throttle::rate(3, "1s"))
        .concurrency(Concurrency::max(1).label("step"))
        .to(work.step::<String>())
        .split_at_once(
            2,
            |body: String| vec![body.clone(), body],
            |part| part.concurrency(Concurrency::max(1).label("part")).transform(|body: String| body.len()),
        )
        .delay(MS)
        .aggregate(|lengths: Vec<usize>| lengths.iter().sum::<usize>())
        .build()
        .unwrap()
}

/// Polls until it is done or has been polled so often; time goes on and work ends between the polls.
fn drive<T>(stage: &Stage, call: &mut Driven<'_, T>, polls: usize, between: impl Fn(usize)) -> Option<T> {
    for poll in 0..polls {
        if let Some(output) = call.poll() {
            return Some(output);
        }
        between(poll);
        stage.advance(MS);
    }
    None
}

#[test]
fn r5_dropped_at_every_poll_an_exchange_leaves_nothing_behind() {
    // Seen to fail: with `Flight::drop` doing nothing, the context never empties; with `Sleep::drop` doing nothing,
    // somebody sleeps.
    for stage in [Stage::new, Stage::unheard] {
        drop_at_every_poll(stage);
    }
}

fn drop_at_every_poll(stage: fn() -> Stage) {
    let mut most = 0;
    for polls in 0.. {
        for fails in 0..4 {
            let (work, tap) = (Work::default().fail(fails), Work::default().fail(1));
            let stage = stage();
            let handle = stage.direct(&everything(&work, &tap));
            // Another one is in the way, so that every line is waited in.
            let mut other = Driven::new(handle.call("acme:0".to_owned()));
            drive(&stage, &mut other, 3, |_| ());
            let mut call = Driven::new(handle.call("acme:1".to_owned()));
            let done = drive(&stage, &mut call, polls, |poll| {
                // Time alone goes on first, so that every timer fires somewhere.
                if poll % 3 == 2 {
                    work.end(1);
                    tap.end(1);
                }
            });
            most = most.max(polls);
            drop(call);
            drop(other);
            stage.assert_quiet();
            assert_eq!((work.running(), tap.running()), (0, 0), "after {polls} polls");
            assert_balanced(&stage, &handle, polls);
            if done.is_some() && fails == 3 {
                assert!(most > 10, "it has to be driven through its awaits: {most}");
                return;
            }
        }
        assert!(polls < 200, "it never ends");
    }
}

/// Every `acquired` has its `released`, every `queued` its end, every `started` its own; and the context is empty.
#[track_caller]
fn assert_balanced(stage: &Stage, _: &Direct<String, usize>, polls: usize) {
    let seen = stage.diary.take();
    let count = |name: &str| seen.iter().filter(|line| line.split(' ').next() == Some(name)).count();
    assert_eq!(
        count("route:concurrency:acquired"),
        count("route:concurrency:released"),
        "after {polls} polls: {seen:#?}"
    );
    let ends = ["completed", "dropped", "failed", "cancelled"];
    let ended: usize = ends.iter().map(|end| count(&format!("route:exchange:{end}"))).sum();
    assert_eq!(count("route:exchange:started"), ended, "after {polls} polls: {seen:#?}");
    let mut shutdown = Driven::new(stage.context.shutdown(Duration::from_secs(1)));
    assert!(shutdown.poll().expect("nothing is under way").is_clean(), "after {polls} polls");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Many exchanges under one clock, polled and dropped in any order.
    #[test]
    fn r5_whatever_is_dropped_when_the_bounds_hold_and_nothing_is_left(
        steps in prop::collection::vec((0_usize..6, 0_u8..6), 1..120),
        is_heard in any::<bool>(),
    ) {
        // Seen to fail: with `Sleep::drop` doing nothing; with `Flight::drop` doing nothing; with `Bounded` keeping its
        // passes.
        let (work, tap) = (Work::default(), Work::instant());
        let stage = if is_heard { Stage::new() } else { Stage::unheard() };
        let handle = stage.direct(&everything(&work, &tap));
        let mut calls: Vec<Option<Driven<'_, _>>> = (0..6).map(|_| None).collect();
        for (index, action) in steps {
            let call = &mut calls[index];
            match (action, call.as_mut()) {
                (0..=2, None) => *call = Some(Driven::new(handle.call(format!("{}:{index}", ["acme", "globex"][index % 2])))),
                (0..=2, Some(driven)) => if driven.poll().is_some() { *call = None },
                (3, _) => *call = None,
                (4, _) => { work.fail_next(index % 2); work.end(1) }
                _ => stage.advance(MS * (index as u32 + 1)),
            }
            prop_assert!(work.running() <= 1, "the step has one slot");
            let gates = stage.gates();
            prop_assert!(gates[1].0 <= 2 && gates[4].0 <= 1, "{gates:?}");
        }
        drop(calls);
        stage.assert_quiet();
        assert_balanced(&stage, &handle, 0);
    }
}

#[test]
fn r5_a_timeout_takes_a_waiter_out_of_the_line() {
    // Seen to fail: with `within` never giving up.
    for is_route_scope in [true, false] {
        let stage = Arc::new(Stage::new());
        let work = Work::default();
        let limit = || Concurrency::max(1);
        let route = if is_route_scope {
            let draft = Route::new("waits").timeout(50 * MS).concurrency(limit());
            draft.from(direct()).to(work.step::<u32>()).build()
        } else {
            Route::new("waits")
                .from(direct())
                .timeout(50 * MS)
                .concurrency(limit())
                .to(work.step::<u32>())
                .build()
        };
        let handle = stage.direct(&route.unwrap());
        let first = Driven::pending(handle.call(1));
        stage.advance(20 * MS);
        let mut second = Driven::pending(handle.call(2));
        assert_eq!(stage.gates(), [(1, 1)]);
        drop(first);
        let mut third = Driven::pending(handle.call(3));
        assert!(second.poll().is_none() && third.poll().is_none());
        stage.advance(50 * MS);
        let scope = if is_route_scope { "route" } else { "step" };
        assert_eq!(
            message(third.ready()),
            format!("RC5011: a {scope} of route `waits` took longer than 50ms")
        );
        assert_eq!(stage.gates(), [(1, 0)]);
        assert_eq!(code(second.ready()), "RC5011");
        assert_eq!((work.running(), stage.gates()), (0, vec![(0, 0)]));
        assert_eq!(stage.diary.take_of("route:timeout").len(), 2);
    }
}

/// A destination that says, when dropped, how many slots of the gate are taken.
struct Reports(Arc<dyn Fn() + Send + Sync>);

impl Future for Reports {
    type Output = Result<u32, BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn r5_cancelled_work_releases_with_the_work_and_never_before_it() {
    // Seen to fail: with `Draft::concurrency` forgetting the limiter, no slot is taken while the work is dropped.
    let stage = Arc::new(Stage::new());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (looks, notes) = (Arc::downgrade(&stage), Arc::clone(&seen));
    let report: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let stage = looks.upgrade().unwrap();
        notes.lock().unwrap().push(stage.gates());
    });
    let route = Route::new("slow")
        .timeout(10 * MS)
        .concurrency(Concurrency::max(1))
        .from(direct())
        .to(move |_: u32| Reports(Arc::clone(&report)))
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    let mut timed = Driven::pending(handle.call(1));
    stage.advance(10 * MS);
    assert_eq!(code(timed.ready()), "RC5011");
    drop(Driven::pending(handle.call(2)));
    assert_eq!(*seen.lock().unwrap(), [[(1, 0)], [(1, 0)]], "its slot is taken while the work is dropped");
    stage.assert_quiet();
}

#[test]
fn r5_a_step_has_given_its_slot_back_before_the_next_one_begins() {
    // Seen to fail: with `InTurn` dropping the first step only when the second has begun, its slot is still taken.
    let stage = Arc::new(Stage::new());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (looks, notes) = (Arc::downgrade(&stage), Arc::clone(&seen));
    let look = move |body: u32| {
        notes.lock().unwrap().push(looks.upgrade().unwrap().gates());
        async move { Ok::<_, Error>(body) }
    };
    let (first, second, third) = (look.clone(), look.clone(), look);
    let one = || Concurrency::max(1);
    let route = Route::new("steps").from(direct()).concurrency(one()).to(first).concurrency(one()).to(second);
    let handle = stage.direct(&route.to(third).build().unwrap());
    assert_eq!(Driven::new(handle.call(7)).poll().unwrap().unwrap(), 7);
    // They look when they begin, before they are polled.
    let expected = [[(1, 0), (0, 0)], [(0, 0), (1, 0)], [(0, 0), (0, 0)]];
    assert_eq!(*seen.lock().unwrap(), expected);
    stage.assert_quiet();
}

#[test]
fn r5_taps_and_branches_of_a_bounded_step_are_inside_the_bound() {
    // Seen to fail: with `Tap::run` not waiting for what it sent.
    let stage = Stage::new();
    let (tap, branches) = (Work::default(), Work::default());
    let route = Route::new("inside")
        .from(direct())
        .concurrency(Concurrency::max(1).label("tap"))
        .tap(tap.step::<u32>())
        .concurrency(Concurrency::max(2).label("branches"))
        .multicast(|fan| fan.branch(|b| b.to(branches.step())).branch(|b| b.to(branches.step())))
        .aggregate(|bodies: Vec<u32>| bodies.iter().sum::<u32>())
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    let mut calls: Vec<_> = (1..4).map(|body| Driven::pending(handle.call(body))).collect();
    assert_eq!((tap.running(), stage.gates()), (1, vec![(1, 2), (0, 0)]));
    tap.end(3);
    for _ in 0..3 {
        calls.iter_mut().for_each(|call| assert!(call.poll().is_none()));
    }
    assert_eq!(tap.most(), 1);
    assert_eq!(
        (branches.running(), stage.gates()),
        (4, vec![(0, 0), (2, 1)]),
        "two branches for each of two"
    );
    drop(calls);
    assert_eq!(branches.running(), 0, "they are dropped with the exchange");
    stage.assert_quiet();
}

#[test]
fn r5_a_route_that_calls_itself_is_refused_with_both_places_named() {
    // Seen to fail: with `Passes::hold` not telling what the work holds, the inner call waits for ever.
    let stage = Stage::new();
    let route = Route::new("mirror")
        .concurrency(Concurrency::max(1))
        .from(direct())
        .to(direct_to::<u32, u32>("mirror"))
        .build()
        .unwrap();
    let sends = line!() - 3;
    let handle = stage.direct(&route);
    let refused = Driven::new(handle.call(1)).poll().expect("refused, not hung").unwrap_err();
    let calls = line!() - 1;
    let refusal = refused.error().unwrap().refusal().unwrap();
    assert_eq!(refusal.reason.as_str(), "re-entrant");
    let (held, asked) = refusal.places.unwrap();
    assert_eq!(
        held.to_string(),
        format!("{}:{calls}", file!()),
        "where the exchange was sent that holds the slot"
    );
    assert_eq!(asked.to_string(), format!("{}:{sends}", file!()), "and where it was sent on");
    assert!(!refused.error().unwrap().is_retryable());
    stage.assert_quiet();
}

/// A step that does something before its future is polled.
struct Eager<F>(F);

impl<F: Fn(u32) + Send + Sync + 'static> Step<u32> for Eager<F> {
    type Out = u32;

    fn run<'a>(
        &'a self,
        exchange: Exchange<u32>,
        _: Cx<'a>,
    ) -> impl Future<Output = Outcome<u32>> + Send + 'a {
        (self.0)(exchange.body);
        ready(Ok(exchange))
    }
}

#[test]
fn r5_a_step_that_panics_before_it_is_polled_ends_its_own_exchange_and_no_other() {
    // Seen to fail: with `Stage::begin` before the `catch_unwind` in `Flight::work`, the panic reaches the caller.
    // With a `Stub` that does nothing when it is dropped, the slot stays taken where nobody listens.
    for stage in [Stage::new(), Stage::unheard()] {
        let panics = Eager(|body| assert!(body > 0, "as it was told to"));
        let route = Route::new("panics").concurrency(Concurrency::max(1)).from(direct()).step(panics).build();
        let handle = stage.direct(&route.unwrap());
        assert_eq!(
            message(Driven::new(handle.call(0)).poll().unwrap()),
            "RC9901: a step of route `panics` panicked"
        );
        stage.assert_quiet();
        assert_eq!(Driven::new(handle.call(1)).poll().unwrap().unwrap(), 1);
    }
}

#[test]
fn r5_what_a_step_does_before_it_is_polled_is_done_under_its_pass() {
    // Seen to fail: with `Bound::inside` beginning the work before the pass is noted, the reason is `busy`.
    for stage in [Stage::new(), Stage::unheard()] {
        let (gate, seen) = (Arc::new(OnceLock::<Gate>::new()), Arc::new(OnceLock::new()));
        let asks = {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            Eager(move |_| {
                let refusal = gate.get().unwrap().try_enter().unwrap_err();
                seen.set(refusal.reason).unwrap();
            })
        };
        let route = Route::new("asks").concurrency(Concurrency::max(1)).from(direct()).step(asks).build();
        let handle = stage.direct(&route.unwrap());
        let Door::One(door) = stage.context.gates()[0].gate.clone() else { panic!("it has no keys") };
        gate.set(door).unwrap();
        Driven::new(handle.call(1)).poll().unwrap().unwrap();
        assert_eq!(seen.get(), Some(&Reason::Reentrant));
        stage.assert_quiet();
    }
}
