//! R4 codes, R6 every wrapper with its options and defaults, in both scopes.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use flowgate::{
    Code,
    route::{
        Cache, Category, CircuitBreaker, Concurrency, Error, Exchange, Failure, Jitter, Retry, Route,
        Throttle, direct,
    },
};
use flowgate_testkit::Driven;

use crate::kit::{MS, Stage, Work, code, message, refused};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn r4_every_code_has_a_category_a_suggestion_and_a_page() {
    // Seen to fail: with another title on a page.
    for code in Code::ALL {
        let error = Error::new(code, "x");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(error.docs());
        let text = std::fs::read_to_string(&page).unwrap_or_else(|_| panic!("{} has no page", code.as_str()));
        assert!(text.starts_with(&format!("# {code}: ")), "{code}");
        let said = if error.is_retryable() { "**Retryable: yes" } else { "**Retryable: no" };
        let depends = text.contains("| reason | retryable |");
        assert!(text.contains(said) || depends, "{code}: the page does not say `{said}`");
        assert_ne!(error.suggestion(), "see the page for its code", "{code}");
    }
    let of = |code| Error::new(code, "x").category();
    assert_eq!(
        [Code::DuplicateRoute, Code::Misplaced, Code::Stopping, Code::TimedOut, Code::Panicked].map(of),
        [Category::Definition, Category::Placement, Category::Lifecycle, Category::Step, Category::Runtime]
    );
}

#[test]
fn r4_shed_load_does_not_open_a_breaker_unless_asked() {
    // Seen to fail: with `Broken::run` counting every error.
    for counts_shed in [false, true] {
        let stage = Stage::new();
        let work = Work::default();
        let breaker = CircuitBreaker::new().failure_threshold(2);
        let breaker = if counts_shed { breaker.count_shed() } else { breaker };
        let route = Route::new("sheds")
            .circuit_breaker(breaker)
            .concurrency(Concurrency::max(1).reject())
            .from(direct())
            .to(work.step::<u32>())
            .build()
            .unwrap();
        let handle = stage.direct(&route);
        let _running = Driven::pending(handle.call(0));
        let codes: Vec<_> = (0..4).map(|body| code(Driven::new(handle.call(body)).poll().unwrap())).collect();
        let expected = if counts_shed { ["RC5026", "RC5026", "RC5025", "RC5025"] } else { ["RC5026"; 4] };
        assert_eq!(codes, expected);
    }
}

#[test]
fn r6_retry_has_three_attempts_a_second_apart_for_what_is_retryable() {
    // Seen to fail: with two attempts by default.
    let stage = Stage::new();
    let work = Work::instant().fail(usize::MAX);
    let route =
        Route::new("thrice").from(direct()).retry(Retry::new()).to(work.step::<u32>()).build().unwrap();
    let handle = stage.direct(&route);
    let mut call = Driven::pending(handle.call(1));
    for _ in 0..2 {
        stage.advance(999 * MS);
        assert!(call.poll().is_none());
        stage.advance(MS);
        let _ = work.started();
        if let Some(failed) = call.poll() {
            assert_eq!(code(failed), "RC5001");
            break;
        }
    }
    assert_eq!(work.started(), 3);
    assert_eq!(
        stage.diary.take_of("route:retry"),
        [
            "route:retry:scheduled step attempt=1 backoff=1s RC5001",
            "route:retry:scheduled step attempt=2 backoff=1s RC5001",
            "route:retry:exhausted step attempts=3 RC5001",
        ]
    );

    let stage = Stage::new();
    let refuses = Route::new("final")
        .retry(Retry::new())
        .from(direct())
        .validate(|_: &u32| Err("never valid"))
        .build()
        .unwrap();
    let handle = stage.direct(&refuses);
    assert_eq!(message(Driven::new(handle.call(1)).poll().expect("not tried again")), "RC5002: never valid");
}

#[test]
fn r6_retry_takes_its_factor_its_most_its_jitter_and_its_own_judgement() {
    // Seen to fail: with `retry_on` not asked.
    let stage = Stage::with(|builder| builder.random(|| 0.5));
    let retry = Retry::new().max_attempts(4).backoff(100 * MS).factor(3.0).max_backoff(500 * MS);
    let retry = retry.jitter(Jitter::Full).retry_on(|error| error.code() == Code::Invalid);
    let route =
        Route::new("own").from(direct()).retry(retry).validate(|_: &u32| Err("never valid")).build().unwrap();
    let handle = stage.direct(&route);
    let mut call = Driven::pending(handle.call(1));
    for pause in [50, 150, 250] {
        assert!(call.poll().is_none());
        stage.advance(pause * MS);
    }
    assert_eq!(code(call.ready()), "RC5002");

    let bad =
        |retry: Retry| refused(Route::new("bad").retry(retry).from(direct()).transform(|b: u32| b).build());
    for (retry, told) in [
        (Retry::new().max_attempts(0), "option `max_attempts` is 0; accepted: an integer from 1 to 1000"),
        (Retry::new().factor(0.5), "option `factor` is 0.5; accepted: a number from 1 to 100"),
        (
            Retry::new().max_backoff(MS),
            "option `max_backoff` is 1ms; accepted: a time from `backoff` to 24 h",
        ),
        (Retry::new().jitter(Jitter::Fraction(1.5)), "option `jitter` is 1.5; accepted: a share from 0 to 1"),
        (
            Retry::new().backoff(2 * 86_400 * SECOND),
            "option `backoff` is 172800s; accepted: a time from 0 to 24 h",
        ),
    ] {
        assert_eq!(bad(retry), format!("RC5003: {told}"));
    }
}

#[test]
fn r6_throttle_delays_by_default_with_a_window_or_a_bucket_per_key() {
    // Seen to fail: with `burst` not handed on.
    let stage = Stage::new();
    let route = Route::new("paced")
        .from(direct())
        .throttle(Throttle::rate(10, "1s").burst(1).key(|exchange: &Exchange<&'static str>| exchange.body))
        .transform(|body: &'static str| body)
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    assert_eq!(Driven::new(handle.call("a")).poll().unwrap().unwrap(), "a");
    assert_eq!(Driven::new(handle.call("b")).poll().unwrap().unwrap(), "b", "another key, another bucket");
    let mut second = Driven::pending(handle.call("a"));
    stage.advance(100 * MS);
    assert_eq!(second.ready().unwrap(), "a");
    assert_eq!(
        stage.diary.take_of("route:throttle"),
        [
            "route:throttle:passed step key=a waited=false in_use=1",
            "route:throttle:passed step key=b waited=false in_use=1",
            "route:throttle:delayed step key=a depth=1",
            "route:throttle:passed step key=a waited=true in_use=1",
        ]
    );
    let bad = Route::new("bad").throttle(Throttle::rate(0, "1s")).from(direct()).transform(|body: u32| body);
    assert!(refused(bad.build()).starts_with("RC5003: option `rate` is 0"));
    let bad =
        Route::new("bad").throttle(Throttle::rate(1, "soon")).from(direct()).transform(|body: u32| body);
    assert!(refused(bad.build()).starts_with("RC5003: option `per` is \"soon\""));
}

#[test]
fn r6_a_breaker_opens_cools_down_tries_and_closes() {
    // Seen to fail: with a trial that went well deciding nothing.
    let stage = Stage::new();
    let work = Work::instant().fail(3);
    let breaker = CircuitBreaker::new().failure_threshold(2).window(SECOND).cooldown(5 * SECOND);
    let route =
        Route::new("guarded").from(direct()).circuit_breaker(breaker).to(work.step::<u32>()).build().unwrap();
    let handle = stage.direct(&route);
    let call = |body| Driven::new(handle.call(body)).poll().expect("at once");
    assert_eq!([call(1), call(2)].map(code), ["RC5001"; 2]);
    assert_eq!(message(call(3)), "RC5025: a circuit breaker of route `guarded` is open for another 5s");
    stage.advance(5 * SECOND);
    assert_eq!([call(4), call(5)].map(code), ["RC5001", "RC5025"], "the trial failed: open again");
    stage.advance(5 * SECOND);
    assert_eq!(call(6).unwrap(), 6);
    assert_eq!(call(7).unwrap(), 7);
    assert_eq!(
        stage.diary.take_of("route:breaker"),
        [
            "route:breaker:opened step",
            "route:breaker:rejected step fallback=false",
            "route:breaker:half-opened step",
            "route:breaker:opened step",
            "route:breaker:rejected step fallback=false",
            "route:breaker:half-opened step",
            "route:breaker:closed step",
        ]
    );
}

#[test]
fn r6_a_breaker_half_open_lets_so_many_through_and_a_cancelled_trial_makes_room() {
    // Seen to fail: with `UnderWay::drop` doing nothing, the breaker stays half open for ever.
    let stage = Stage::new();
    let work = Work::default().fail(1);
    let breaker = CircuitBreaker::new().failure_threshold(1).cooldown(SECOND).half_open_max(1);
    let route = Route::new("trial")
        .circuit_breaker(breaker.fallback(|_| Ok::<u32, Error>(0)))
        .from(direct())
        .to(work.step::<u32>())
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    work.end(1);
    assert_eq!(code(Driven::new(handle.call(1)).poll().unwrap()), "RC5001");
    assert_eq!(Driven::new(handle.call(2)).poll().unwrap().unwrap(), 0, "the fallback");
    stage.advance(SECOND);
    let trial = Driven::pending(handle.call(3));
    assert_eq!(Driven::new(handle.call(4)).poll().unwrap().unwrap(), 0, "one trial at a time");
    drop(trial);
    let mut trial = Driven::pending(handle.call(5));
    work.end(1);
    assert_eq!(trial.ready().unwrap(), 5);
    for (breaker, told) in [
        (CircuitBreaker::<u32>::new().failure_threshold(0), "option `failure_threshold` is 0"),
        (CircuitBreaker::new().half_open_max(0), "option `half_open_max` is 0"),
        (CircuitBreaker::new().cooldown(Duration::ZERO), "option `cooldown` is 0ns"),
    ] {
        let bad = Route::new("bad").circuit_breaker(breaker).from(direct()).transform(|body: u32| body);
        assert!(refused(bad.build()).starts_with(&format!("RC5003: {told}")));
    }
}

#[test]
fn r6_a_panic_counts_as_a_failure_of_what_was_asked() {
    // Seen to fail: with `UnderWay::drop` taking a panic for a cancelled trial.
    let stage = Stage::new();
    let route = Route::new("panics")
        .circuit_breaker(CircuitBreaker::new().failure_threshold(1))
        .from(direct())
        .transform(|body: u32| if body == 0 { panic!("as it was told to") } else { body })
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    assert_eq!(code(Driven::new(handle.call(0)).poll().unwrap()), "RC9901");
    assert_eq!(code(Driven::new(handle.call(1)).poll().unwrap()), "RC5025");
}

#[test]
fn r6_a_panic_is_a_failure_of_what_panicked_and_not_of_what_ran_beside_it() {
    // Seen to fail: with `UnderWay::drop` not asking whether its own work was at it, the breaker of the other branch opened.
    let stage = Stage::new();
    let work = Work::default();
    let breaker = || CircuitBreaker::new().failure_threshold(1);
    let route = Route::new("beside")
        .from(direct())
        .multicast(|fan| {
            fan.branch(|way| way.circuit_breaker(breaker()).to(work.step::<u32>())).branch(|way| {
                way.transform(|body: u32| if body == 0 { panic!("as it was told to") } else { body })
            })
        })
        .transform(|bodies: Vec<u32>| bodies.len());
    let handle = stage.direct(&route.build().unwrap());
    assert_eq!(code(Driven::new(handle.call(0)).poll().unwrap()), "RC9901");
    let mut call = Driven::pending(handle.call(1));
    work.end(1);
    assert_eq!(call.ready().unwrap(), 2);
    assert_eq!(stage.diary.take_of("route:breaker"), Vec::<String>::new());
}

#[test]
fn r6_what_is_wrong_with_the_exchange_or_the_route_does_not_open_a_breaker() {
    // Seen to fail: with `is_failure` asking whether it was shed alone, anybody could open it with an invalid body; with
    // `failure_on` not asked, the last one was let through.
    let outcomes = |breaker: CircuitBreaker<u32>| {
        let stage = Stage::new();
        let keyed = Concurrency::max(1).try_key(|exchange: &Exchange<u32>| match exchange.body {
            3 => Err("no key"),
            _ => Ok("key"),
        });
        let route = Route::new("guarded")
            .circuit_breaker(breaker.failure_threshold(1))
            .from(direct())
            .validate(|body: &u32| if *body == 1 { Err("invalid") } else { Ok(()) })
            .to(|body: u32| async move {
                let unreadable = || Error::new(Code::Unreadable, "unreadable");
                if body == 2 { Err(unreadable()) } else { Ok(body) }
            })
            .concurrency(keyed)
            .to(|body: u32| async move { if body == 4 { Err(Error::of("down")) } else { Ok(body) } });
        let handle = stage.direct(&route.build().unwrap());
        [1, 2, 3, 4, 5].map(|body| {
            let outcome = Driven::new(handle.call(body)).poll().unwrap();
            outcome.map_or_else(|halt| halt.code().unwrap().as_str(), |_| "")
        })
    };
    assert_eq!(outcomes(CircuitBreaker::new()), ["RC5002", "RC5016", "RC5003", "RC5001", "RC5025"]);
    let invalid = |error: &Error| error.code() == Code::Invalid;
    assert_eq!(
        outcomes(CircuitBreaker::new().failure_on(invalid)),
        ["RC5002", "RC5025", "RC5025", "RC5025", "RC5025"]
    );
    let none = CircuitBreaker::new().failure_on(|_| false);
    assert_eq!(outcomes(none), ["RC5002", "RC5016", "RC5003", "RC5001", ""]);
}

#[test]
fn r6_a_cache_knows_for_its_time_and_in_both_scopes() {
    // Seen to fail: with entries that never leave.
    for is_route_scope in [true, false] {
        let stage = Stage::new();
        let calls = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&calls);
        let price = move |sku: u32| counts.fetch_add(1, Ordering::SeqCst) + 100 * sku;
        let cache = Cache::ttl(SECOND, |exchange: &Exchange<u32>| exchange.body.to_string()).max_entries(2);
        let route = if is_route_scope {
            Route::new("prices").cache(cache).from(direct()).transform(price).build()
        } else {
            Route::new("prices").from(direct()).cache(cache).transform(price).build()
        };
        let handle = stage.direct(&route.unwrap());
        let ask = |sku| Driven::new(handle.call(sku)).poll().unwrap().unwrap();
        assert_eq!([ask(1), ask(1), ask(2), ask(1)], [100, 100, 201, 100]);
        stage.advance(SECOND);
        assert_eq!(ask(1), 102, "its time is over");
        let scope = if is_route_scope { "route" } else { "step" };
        assert_eq!(
            stage.diary.take_of("route:cache")[..2],
            [format!("route:cache:missed {scope} key=1"), format!("route:cache:hit {scope} key=1")]
        );
    }
    let bad =
        |cache| refused(Route::new("bad").cache(cache).from(direct()).transform(|body: u32| body).build());
    assert!(bad(Cache::ttl(Duration::ZERO, |_| "")).starts_with("RC5003: option `ttl` is 0ns"));
    assert!(bad(Cache::ttl(SECOND, |_| "").max_entries(0)).starts_with("RC5003: option `max_entries` is 0"));
}

#[test]
fn r6_delay_and_timeout_and_error_cover_the_next_step_alone() {
    // Seen to fail: with `within` never giving up.
    let stage = Stage::new();
    let (first, second) = (Work::default(), Work::default());
    let route = Route::new("steps")
        .from(direct())
        .delay(20 * MS)
        .transform(|body: u32| body)
        .error(|failure: Failure| async move {
            assert_eq!((failure.route.as_str(), failure.error.code().as_str()), ("steps", "RC5011"));
            Ok::<u32, Error>(42)
        })
        .timeout(10 * MS)
        .to(first.step::<u32>())
        .to(second.step::<u32>())
        .build()
        .unwrap();
    let handle = stage.direct(&route);
    let mut call = Driven::pending(handle.call(1));
    stage.advance(20 * MS);
    assert!(call.poll().is_none());
    assert_eq!(first.running(), 1);
    stage.advance(10 * MS);
    assert!(call.poll().is_none(), "handled, and on to the next step");
    assert_eq!((first.running(), second.running()), (0, 1));
    stage.advance(60 * SECOND);
    assert!(call.poll().is_none(), "which has all the time in the world");
    second.end(1);
    assert_eq!(call.ready().unwrap(), 42);
    let told: Vec<_> = stage.diary.take().into_iter().filter(|line| !line.contains("exchange")).collect();
    assert_eq!(
        told,
        [
            "route:delay:started step span=20ms",
            "route:timeout:expired step after=10ms",
            "route:error:caught step RC5011",
            "route:error:recovered step",
        ]
    );
    let bad = Route::new("bad").timeout(Duration::ZERO).from(direct()).transform(|body: u32| body);
    assert_eq!(refused(bad.build()), "RC5003: option `timeout` is 0ns; accepted: a time above zero");
}
