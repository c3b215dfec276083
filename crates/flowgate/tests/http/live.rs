//! H1 and H3 while limits move: by hand, by a rule, and by the clock.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::Path,
    http::StatusCode,
    routing::{any, get},
};
use flowgate::{
    Adaptive, Limits, Reason,
    gate::Event,
    http::{ConcurrencyLimit, RateLimit, Scope},
};
use flowgate_testkit::FakeClock;

use crate::kit::{Client, Held, ask, ask_with, begin, endless, in_use, limit, serve, waiting};

fn tenant() -> Scope {
    Scope::by(|parts| Some(parts.headers.get("x-tenant")?.to_str().ok()?.to_owned()))
}

async fn begin_as(server: std::net::SocketAddr, tenant: &str) -> Client {
    let mut client = Client::connect(server).await;
    client.ask_with("/", &format!("x-tenant: {tenant}\r\n")).await;
    client
}

fn at_most(max: u32) -> Limits {
    Limits::builder().max(max).reject().build().unwrap()
}

#[tokio::test]
async fn h1_other_limits_hold_at_once() {
    // Seen to fail: with `set_limits` doing nothing, for a layer with one budget and for one with many.
    let one = limit(1, |options| options);
    let many = limit(1, |options| options.scope(tenant()));
    for limit in [one, many] {
        let held = Held::new();
        let server = serve(held.at("/").layer(limit.clone())).await;
        let mut first = begin_as(server, "a").await;
        in_use(&limit, 1).await;
        assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.status, 503);
        limit.set_limits(at_most(2)).unwrap();
        let mut second = begin_as(server, "a").await;
        in_use(&limit, 2).await;
        let refused = ask_with(server, "/", "x-tenant: a\r\n").await;
        assert_eq!((refused.status, refused.header("concurrency-limit")), (503, Some("2")));
        held.release(2);
        assert_eq!(first.answer().await.status, 200);
        assert_eq!(second.answer().await.status, 200);
    }
}

#[tokio::test]
async fn h6_limits_that_say_nothing_of_the_line_leave_it_as_it_is() {
    // Seen to fail: with limits taken as they are, every layer had a line without a bound from then on.
    let max = |max| Limits::builder().max(max).build().unwrap();
    let none = limit(1, |options| options);
    let some = limit(1, |options| options.max_queue(2).queue_timeout(Duration::from_secs(9)));
    for limit in [none, some] {
        let line = limit.look().limits.overflow();
        limit.set_limits(max(50)).unwrap();
        let look = limit.look().limits;
        assert_eq!((look.max(), look.overflow()), (Some(50), line));
        limit.set_limits(Limits::builder().max(50).queue(7).build().unwrap()).unwrap();
        limit.set_limits(max(60)).unwrap();
        assert_eq!(limit.look().limits.to_string(), "max 60, queue 7", "as it was last");
    }
    let none = limit(1, |options| options);
    let codel =
        Limits::builder().max(2).codel(Duration::from_millis(5), Duration::from_millis(100)).build().unwrap();
    assert_eq!(none.set_limits(codel).unwrap_err().option(), "codel", "there is no line to serve");

    let held = Held::new();
    let many = limit(1, |options| options.scope(tenant()));
    let server = serve(held.at("/").layer(many.clone())).await;
    assert!(many.pin("a", max(1)).unwrap());
    let mut first = begin_as(server, "a").await;
    in_use(&many, 1).await;
    assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.status, 503, "a pin makes no line, either");
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
}

#[test]
fn h1_limits_that_bound_nothing_in_flight_are_refused() {
    // Seen to fail: with limits taken as they are, the layer bounds nothing from then on, and nobody is told.
    let rate = || Limits::builder().rate(100, "1s").build().unwrap();
    let expected = "RC5003: option `max` is not set; accepted: \
        limits with a `max`, because this layer counts requests in flight";
    let one = limit(1, |options| options);
    let many = limit(1, |options| options.scope(tenant()));
    for limit in [&one, &many] {
        assert_eq!(limit.set_limits(rate()).unwrap_err().to_string(), expected);
        assert_eq!(limit.look().limits.max(), Some(1), "as it was");
    }
    assert_eq!(many.pin("a", rate()).unwrap_err().to_string(), expected);
    let both = Limits::builder().max(2).rate(100, "1s").build().unwrap();
    assert!(one.set_limits(both).is_ok() && many.pin("a", both).unwrap());
}

#[tokio::test]
async fn h1_one_lane_can_have_limits_of_its_own() {
    // Seen to fail: with `pin` doing nothing, the second of `a` is refused; with `unpin` doing nothing.
    let held = Held::new();
    let limit = limit(1, |options| options.scope(tenant()));
    let server = serve(held.at("/").layer(limit.clone())).await;
    assert!(limit.pin("a", at_most(2)).unwrap());
    let mut clients = Vec::new();
    for (tenant, count) in [("a", 1), ("a", 2), ("b", 3)] {
        clients.push(begin_as(server, tenant).await);
        in_use(&limit, count).await;
    }
    assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.header("concurrency-limit"), Some("2"));
    assert_eq!(ask_with(server, "/", "x-tenant: b\r\n").await.header("concurrency-limit"), Some("1"));
    held.release(3);
    for client in &mut clients {
        assert_eq!(client.answer().await.status, 200);
    }
    in_use(&limit, 0).await;
    assert!(limit.unpin("a") && !limit.unpin("a"));
    let mut last = begin_as(server, "a").await;
    in_use(&limit, 1).await;
    assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.status, 503);
    held.release(1);
    assert_eq!(last.answer().await.status, 200);
}

#[test]
fn h1_one_budget_for_all_has_no_pins() {
    // Seen to fail: with `Ok(false)`, which says that there is no room for another lane.
    let limit = limit(1, |options| options);
    assert_eq!(
        limit.pin("a", at_most(2)).unwrap_err().to_string(),
        "RC5003: option `pin` is \"a\"; accepted: only with a scope that has keys; for `global`, change the limits instead"
    );
    assert!(!limit.unpin("a"));
}

#[tokio::test]
async fn h1_events_and_refusals_name_the_gate_and_its_scope() {
    // Seen to fail: with `name` ignored, and without `scope(front.scope.word())` in either layer's `build`.
    let heard = Arc::new(Mutex::new(HashSet::new()));
    let hear = |heard: &Arc<Mutex<HashSet<String>>>| {
        let heard = Arc::clone(heard);
        move |event: &Event<'_>| {
            let (gate, scope) = (&event.ident.gate, event.ident.scope.as_deref());
            heard.lock().unwrap().insert(format!("{gate} {}", scope.unwrap_or("none")));
        }
    };
    let client = || flowgate::http::Identity::by(|_| None);
    let named = limit(1, |options| options.name("mine").listener(hear(&heard)));
    let route = limit(1, |options| options.scope(Scope::Route).listener(hear(&heard)));
    let by = limit(1, |options| options.scope(tenant()).listener(hear(&heard)));
    let rate = RateLimit::builder().rate(9, "1s").scope(Scope::Client).identity(client());
    let rate = rate.listener(hear(&heard)).build().unwrap();
    let router = Router::new().route("/", get(|| async { "" }));
    let server = serve(router.layer(rate).layer(by).layer(route).layer(named)).await;
    assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.status, 200);
    let names = ["mine global", "http route", "http custom", "http-rate client"];
    assert_eq!(*heard.lock().unwrap(), names.map(str::to_owned).into());
}

#[tokio::test]
async fn h4_one_who_waited_too_long_is_told_so() {
    // Seen to fail: with `queue_timeout` ignored, nobody is answered; without figures for those refused in line.
    let clock = FakeClock::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    let held = Held::new();
    let limit = limit(1, |options| {
        let options = options.max_queue(1).queue_timeout(Duration::from_secs(2)).clock(clock.clone());
        options.status(StatusCode::TOO_MANY_REQUESTS).message("{waiting} waiting").on_reject(
            move |rejected| {
                told.lock().unwrap().push((rejected.reason, rejected.active, rejected.queued));
            },
        )
    });
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut first = begin(server, "/").await;
    in_use(&limit, 1).await;
    let mut second = begin(server, "/").await;
    waiting(&limit, 1).await;
    let full = ask(server, "/").await;
    assert_eq!(full.header("flowgate-refusal"), Some("queue-full"));
    assert_eq!(full.json()["detail"], "1 waiting");
    clock.advance(Duration::from_millis(1_999));
    assert_eq!(limit.look().waiting, 1);
    clock.advance(Duration::from_millis(1));
    let late = second.answer().await;
    assert_eq!((late.status, late.header("flowgate-refusal")), (429, Some("queue-timeout")));
    assert_eq!(late.json()["reason"], "queue-timeout");
    assert_eq!((late.header("retry-after"), late.header("concurrency-remaining")), (Some("1"), Some("0")));
    assert_eq!(*heard.lock().unwrap(), [(Reason::QueueFull, 1, 1), (Reason::QueueTimeout, 1, 1)]);
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
}

#[tokio::test]
async fn h4_no_room_for_another_key_is_503_whatever_the_status() {
    // Seen to fail: with `KeysFull` taken for somebody's budget, `b` is answered 429; with `max_keys` ignored, it is let in; with
    // the figures of a lane that is not there, one of its slots was said to be free.
    let held = Held::new();
    let limit = limit(1, |options| options.scope(tenant()).max_keys(1).status(StatusCode::TOO_MANY_REQUESTS));
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut first = begin_as(server, "a").await;
    in_use(&limit, 1).await;
    assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.status, 429);
    let refused = ask_with(server, "/", "x-tenant: b\r\n").await;
    assert_eq!((refused.status, refused.header("flowgate-refusal")), (503, Some("keys-full")));
    assert_eq!(refused.header("concurrency-remaining"), Some("0"));
    assert_eq!(refused.json()["title"], "Too many keys in use");
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
}

#[tokio::test]
async fn h3_an_answer_of_503_or_504_tells_an_adaptive_limit_of_overload() {
    // Seen to fail: with either status left out of `Held::end`, and with `Outcome::Done` for both.
    let limit = limit(10, |options| options.adaptive(Adaptive::aimd()).clock(FakeClock::new()));
    let handler = |Path(status): Path<u16>| async move { StatusCode::from_u16(status).unwrap() };
    let server = serve(Router::new().route("/{status}", any(handler)).layer(limit.clone())).await;
    for (status, max) in [(200, 10), (500, 10), (429, 10), (503, 9), (504, 8), (404, 8)] {
        assert_eq!(ask(server, &format!("/{status}")).await.status, status);
        in_use(&limit, 0).await;
        assert_eq!(limit.look().limits.max(), Some(max), "after {status}");
    }
}

#[tokio::test]
async fn h3_an_answer_of_503_holds_its_slot_like_any_other() {
    // Seen to fail: with the pass settled at the head for every 503, and for those of a limit that adapts.
    for is_adaptive in [false, true] {
        let limit: ConcurrencyLimit = limit(2, |options| {
            let options = options.clock(FakeClock::new());
            if is_adaptive { options.adaptive(Adaptive::aimd()) } else { options }
        });
        let (sender, body) = endless();
        let once = Arc::new(Mutex::new(Some(body)));
        let handler =
            move || async move { (StatusCode::SERVICE_UNAVAILABLE, once.lock().unwrap().take().unwrap()) };
        let server = serve(Router::new().route("/", get(handler)).layer(limit.clone())).await;
        let mut client = begin(server, "/").await;
        assert_eq!(client.head().await.status, 503);
        assert_eq!(limit.look().in_use, 1, "its body goes on");
        drop(sender);
        assert_eq!(client.chunk().await, None);
        in_use(&limit, 0).await;
        assert_eq!(limit.look().limits.max(), Some(if is_adaptive { 1 } else { 2 }), "and then it was heard");
    }
}
