//! R1 stages and types, R2 the fixed order.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use flowgate::route::{
    Cache, CircuitBreaker, Concurrency, Context, Error, Exchange, Failure, Retry, Route, Throttle, direct,
    direct_to, timer, values,
};
use flowgate_testkit::Driven;

use crate::kit::{MS, Stage, Work, refused};

#[test]
fn r1_bodies_are_typed_through_all_steps() {
    // Seen to fail: with `Transform` dropping the exchange.
    let stage = Stage::new();
    let route = Route::new("typed")
        .from(direct())
        .transform(|text: String| text.len())
        .validate(|length: &usize| if *length > 0 { Ok(()) } else { Err("it is empty") })
        .transform(|length| vec![length; 2])
        .aggregate(|lengths: Vec<usize>| lengths.iter().sum::<usize>() as f64)
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    assert_eq!(Driven::new(handle.call("four".to_owned())).poll().unwrap().unwrap(), 8.0);
}

#[test]
fn r1_what_the_compiler_cannot_see_is_told_by_build() {
    // Seen to fail: with `Plan::once` noting nothing, the second `retry` silently takes the place of the first.
    let twice = Route::new("twice").retry(Retry::new()).retry(Retry::new()).from(direct());
    assert_eq!(
        refused(twice.transform(|body: u32| body).build()),
        "RC2001: route `twice`: `retry` is declared twice at route scope"
    );
    // Seen to fail: with `input` not asking whether there is one, the second silently takes the place of the first.
    let read = |body: u32| Ok::<_, Error>(body);
    let twice = Route::new("twice").input(read).input(read).from(direct());
    assert_eq!(
        refused(twice.transform(|body: u32| body).build()),
        "RC2001: route `twice`: `input` is declared twice at route scope"
    );
    let nameless = Route::new("").from(direct()).transform(|body: u32| body);
    assert_eq!(refused(nameless.build()), "RC5003: option `id` is \"\"; accepted: text that is not empty");
    let still = Route::new("still").from(timer(Duration::ZERO)).transform(|count: u64| count);
    assert_eq!(refused(still.build()), "RC5003: option `period` is 0ns; accepted: a time above zero");
}

#[test]
fn r1_routes_that_do_not_go_together_are_told_when_they_are_added_or_started() {
    // Seen to fail: with `Context::start` not checking links, the first call finds out.
    let context = Context::new();
    let route = |id: &str| Route::new(id).from(direct()).transform(|body: u32| body).build().unwrap();
    context.add(&route("a")).unwrap();
    assert_eq!(context.add(&route("a")).unwrap_err().to_string(), "RC1002: route `a` already exists");
    assert_eq!(
        context.direct::<u32, u32>("a").unwrap_err().to_string(),
        "RC5004: no started route `a` takes u32 and answers u32"
    );
    let lost = Route::new("lost").from(direct()).to(direct_to::<u32, u32>("nowhere")).build().unwrap();
    context.add(&lost).unwrap();
    let error = context.start().unwrap_err();
    assert!(error.to_string().starts_with("RC5004: route `lost` sends to route `nowhere` as"), "{error}");
    assert_eq!(context.start().unwrap_err().code().as_str(), "RC3001");
    assert!(context.direct::<u32, u32>("a").is_err(), "nothing was started");

    let context = Context::new();
    context.add(&route("a")).unwrap();
    let other = Route::new("other").from(direct()).to(direct_to::<u32, String>("a")).build().unwrap();
    context.add(&other).unwrap();
    assert!(context.start().unwrap_err().to_string().ends_with("which has other bodies"));

    let context = Context::new();
    context.add(&Route::new("feeds").from(values([1])).transform(|body: u32| body).build().unwrap()).unwrap();
    assert_eq!(context.start().unwrap_err().to_string(), "RC3001: sources need a tokio runtime");
}

/// What stood around the steps, from the outside in, as seen by events of one exchange that fails everywhere.
#[test]
fn r2_at_route_scope_the_order_is_fixed_whatever_the_order_of_the_calls() {
    // Seen to fail: with the throttle put inside of the retry; with the slots left out.
    let declare: [fn(Draft) -> Draft; 7] = [
        |draft| draft.concurrency(Concurrency::max(1)),
        |draft| draft.timeout(100 * MS),
        |draft| draft.retry(Retry::new().max_attempts(2).backoff(10 * MS)),
        |draft| draft.circuit_breaker(CircuitBreaker::new().failure_threshold(1)),
        |draft| draft.throttle(Throttle::rate(100, "1s")),
        |draft| draft.error(|failure: Failure| async move { Err::<u32, Error>(failure.error) }),
        |draft| {
            draft.cache(Cache::ttl(Duration::from_secs(1), |exchange: &Exchange<u32>| {
                exchange.body.to_string()
            }))
        },
    ];
    let forwards: Vec<usize> = (0..7).collect();
    let backwards: Vec<usize> = (0..7).rev().collect();
    for order in [forwards, backwards, vec![3, 0, 6, 1, 5, 2, 4]] {
        let stage = Stage::new();
        let draft = order.iter().fold(Route::new("ordered"), |draft, &index| declare[index](draft));
        let failing = draft.from(direct()).to(Work::instant().fail(2).step::<u32>()).build().unwrap();
        let handle = stage.direct(&failing);
        let mut call = Driven::pending(handle.call(7));
        stage.advance(10 * MS);
        assert!(call.ready().is_err());
        let seen = stage.diary.take();
        assert_eq!(
            seen,
            [
                "route:exchange:started",
                "route:throttle:passed route waited=false in_use=1",
                "route:concurrency:acquired route waited=false in_use=1",
                "route:cache:missed route key=7",
                "route:concurrency:released route held=Some(0ns)",
                "route:retry:scheduled route attempt=1 backoff=10ms RC5001",
                "route:concurrency:acquired route waited=false in_use=1",
                "route:cache:missed route key=7",
                "route:concurrency:released route held=Some(0ns)",
                "route:retry:exhausted route attempts=2 RC5001",
                "route:breaker:opened route",
                "route:error:caught route RC5001",
                "route:exchange:failed RC5001",
            ],
            "{order:?}"
        );
    }
}

type Draft = flowgate::route::Draft<u32, u32, u32>;

#[test]
fn r2_each_neighbour_stands_inside_of_the_one_before() {
    // Seen to fail: with the timeout outside of the retry (`timeout` and `retry` exchanged in `Wrapping::around`).
    let stage = Stage::new();
    let (work, parsed) = (Work::default(), Arc::new(Mutex::new(0)));
    let counts = Arc::clone(&parsed);
    let route = Route::new("nested")
        .throttle(Throttle::rate(1, "1s").reject())
        .timeout(100 * MS)
        .retry(Retry::new().max_attempts(3).backoff(80 * MS))
        .input(move |raw: &'static str| {
            *counts.lock().unwrap() += 1;
            raw.parse::<u32>()
        })
        .from(direct())
        .to(work.step::<u32>())
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    // input > throttle: what cannot be read spends no start.
    let unread = Driven::new(handle.call("seven")).poll().unwrap();
    assert_eq!(crate::kit::message(unread), "RC5016: invalid digit found in string");
    // retry > timeout: each attempt may take as long again.
    let mut call = Driven::pending(handle.call("7"));
    for _ in 0..2 {
        stage.advance(100 * MS);
        assert!(call.poll().is_none(), "the attempt is over time, and there will be another");
        stage.advance(80 * MS);
        assert!(call.poll().is_none());
    }
    work.end(1);
    assert_eq!(call.ready().unwrap(), 7);
    assert_eq!(work.started(), 3);
    assert_eq!(*parsed.lock().unwrap(), 2, "read once, however often it is tried");
    // throttle > retry: three attempts have spent one start, and the next exchange finds the rate spent.
    assert_eq!(stage.gate(0).rate.unwrap().remaining, 0);
    stage.assert_quiet();
}

#[test]
fn r2_delay_comes_before_anything_is_spent_and_the_cache_is_innermost() {
    // Seen to fail: with the delay inside of the throttle.
    let stage = Stage::new();
    let work = Work::instant();
    let route = Route::new("ends")
        .cache(Cache::ttl(Duration::from_secs(60), |exchange: &Exchange<u32>| exchange.body.to_string()))
        .concurrency(Concurrency::max(1))
        .throttle(Throttle::rate(10, "1s"))
        .delay(30 * MS)
        .from(direct())
        .to(work.step::<u32>())
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    let mut call = Driven::pending(handle.call(1));
    assert_eq!(stage.gate(1).rate.map(|left| left.remaining), Some(10), "nothing is spent while it waits");
    stage.advance(30 * MS);
    call.ready().unwrap();
    let mut again = Driven::pending(handle.call(1));
    stage.advance(30 * MS);
    again.ready().unwrap();
    assert_eq!(work.started(), 1, "the second time it was known");
    assert_eq!(stage.diary.take_of("route:concurrency:acquired").len(), 2, "and took a slot all the same");
}
