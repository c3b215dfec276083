//! H1: how a budget is partitioned; H6: the defaults.

use axum::{Router, routing::get};
use flowgate::{
    Reason,
    http::{ConcurrencyLimit, Identity, LoadShed, RateLimit, Scope, Template},
};

use crate::kit::{Held, ask, ask_with, begin, in_use, limit, serve, waiting};

#[tokio::test]
async fn h1_users_1_and_users_2_share_a_lane_and_other_routes_do_not() {
    // Seen to fail: keyed by the path instead of the template, /users/2 has a lane of its own and is not refused; without the
    // method in the key, the POST is.
    let held = Held::new();
    let limit = limit(1, |options| options.scope(Scope::Route));
    let slow = held.clone();
    let router = held
        .at("/users/{id}")
        .route("/users/{id}/photo", get(|| async { "photo" }))
        .route("/orders/{id}", get(move || async move { slow.wait().await }))
        .layer(limit.clone());
    let server = serve(router).await;
    let mut first = begin(server, "/users/1").await;
    in_use(&limit, 1).await;
    assert_eq!(ask(server, "/users/2").await.status, 503);
    assert_eq!(ask(server, "/users/1/photo").await.status, 200);
    let mut order = begin(server, "/orders/1").await;
    in_use(&limit, 2).await;
    assert_eq!(ask(server, "POST /users/1").await.status, 405, "another method, another lane");
    held.release(2);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(order.answer().await.status, 200);
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn h1_unmatched_paths_share_one_lane_and_a_flood_of_them_leaves_nothing() {
    // Seen to fail: with the path as the key of what no route matches, 200 lanes are used (a listener counts the keys).
    let keys = std::sync::Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    let seen = keys.clone();
    let hear = move |event: &flowgate::gate::Event<'_>| {
        seen.lock().unwrap().insert(event.key.unwrap().to_string());
    };
    let limit = limit(1, |options| options.scope(Scope::Route).listener(hear));
    let server = serve(Router::new().route("/", get(|| async { "" })).layer(limit.clone())).await;
    let mut client = crate::kit::Client::connect(server).await;
    for path in 0..200 {
        client.ask(&format!("/no/such/{path}")).await;
        assert_eq!(client.answer().await.status, 404);
    }
    in_use(&limit, 0).await;
    assert_eq!(limit.look().lanes, 0);
    assert_eq!(*keys.lock().unwrap(), ["unmatched".to_owned()].into());
}

#[tokio::test]
async fn h1_methods_that_a_client_makes_up_share_one_lane_of_their_route() {
    // Seen to fail: with any method in the key, each made-up one has slots of its own at a route that takes them all.
    let held = Held::new();
    let limit = limit(1, |options| options.scope(Scope::Route));
    let slow = held.clone();
    let router = Router::new().route("/any", axum::routing::any(move || async move { slow.wait().await }));
    let server = serve(router.layer(limit.clone())).await;
    let mut first = begin(server, "PROPFIND /any").await;
    in_use(&limit, 1).await;
    for made_up in ["LOOPHOLE", "LOOPHOLE2", "propfind"] {
        assert_eq!(ask(server, &format!("{made_up} /any")).await.status, 503, "{made_up}");
    }
    let mut patch = begin(server, "PATCH /any").await;
    in_use(&limit, 2).await;
    held.release(2);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(patch.answer().await.status, 200);
}

#[tokio::test]
async fn h1_a_function_names_the_lane_and_none_is_not_limited() {
    // Seen to fail: with `None` taken for the key "", the last request has a lane and is told its limit.
    let held = Held::new();
    let tenant =
        |parts: &http::request::Parts| Some(parts.headers.get("x-tenant")?.to_str().ok()?.to_owned());
    let limit = limit(1, |options| options.scope(Scope::by(tenant)));
    let server = serve(held.at("/slow").route("/", get(|| async { "" })).layer(limit.clone())).await;
    let mut slow = crate::kit::Client::connect(server).await;
    slow.ask_with("/slow", "x-tenant: a\r\n").await;
    in_use(&limit, 1).await;
    assert_eq!(ask_with(server, "/", "x-tenant: a\r\n").await.status, 503);
    assert_eq!(ask_with(server, "/", "x-tenant: b\r\n").await.status, 200);
    let free = ask(server, "/").await;
    assert_eq!((free.status, free.header("concurrency-limit")), (200, None));
    held.release(1);
    assert_eq!(slow.answer().await.status, 200);
}

#[tokio::test]
async fn h1_a_key_as_long_as_a_head_may_be_is_kept_short_and_is_still_one_of_its_own() {
    // Seen to fail: with the whole text kept; with its beginning alone, the third has the lane of the first; with a character cut
    // in two, it panics; with `pin` or `unpin` not looking for the short one.
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keys = heard.clone();
    let tenant = |parts: &http::request::Parts| Some(parts.headers.get("x-tenant")?.to_str().ok()?.repeat(2));
    let held = Held::new();
    let limit = limit(1, |options| {
        options.scope(Scope::by(tenant)).listener(move |event: &flowgate::gate::Event<'_>| {
            keys.lock().unwrap().push(event.key.unwrap().to_string());
        })
    });
    let server = serve(held.at("/").layer(limit.clone())).await;
    let long = format!("x{}", "ä".repeat(1_500));
    let mut open = Vec::new();
    let send = async |tenant: &str| {
        let mut client = crate::kit::Client::connect(server).await;
        client.ask_with("/", &format!("x-tenant: {tenant}\r\n")).await;
        client
    };
    let (a, b) = ("x".repeat(3_000), "x".repeat(2_999) + "y");
    open.push(send(&a).await);
    in_use(&limit, 1).await;
    assert_eq!(send(&a).await.answer().await.status, 503, "it is the same client");
    open.push(send(&b).await);
    in_use(&limit, 2).await;
    assert!(heard.lock().unwrap().iter().all(|key| key.len() <= 256), "{heard:?}");
    let limits = flowgate::Limits::builder().max(2).reject().build().unwrap();
    assert!(limit.pin(&a.repeat(2), limits).unwrap());
    open.push(send(&a).await);
    in_use(&limit, 3).await;
    assert!(limit.unpin(&a.repeat(2)));
    assert!(limit.pin(&long, limits).unwrap() && limit.unpin(&long));
    held.release(3);
    for mut client in open {
        assert_eq!(client.answer().await.status, 200);
    }
}

#[tokio::test]
async fn h1_other_routers_say_the_template_and_are_believed_first() {
    // Seen to fail: with `Template` not looked for, the first is `unmatched`; with axum's template before it, the second has
    // axum's.
    let keys = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = keys.clone();
    let limit = limit(1, |options| {
        options.scope(Scope::Route).listener(move |event: &flowgate::gate::Event<'_>| {
            if matches!(event.what, flowgate::gate::What::Acquired { .. }) {
                heard.lock().unwrap().push(event.key.unwrap().to_string());
            }
        })
    });
    fn said<B>(mut request: http::Request<B>) -> http::Request<B> {
        request.extensions_mut().insert(Template("/items/:id".into()));
        request
    }
    let plain = tower::service_fn(async |_: http::Request<()>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(axum::body::Body::empty()))
    });
    let service = tower::ServiceBuilder::new().map_request(said).layer(limit.clone()).service(plain);
    drop(tower::ServiceExt::oneshot(service, http::Request::new(())).await.unwrap());
    let router = Router::new().route("/axum/{id}", get(|| async { "" })).layer(limit.clone());
    let router = router.layer(tower::util::MapRequestLayer::new(said));
    assert_eq!(ask(serve(router).await, "/axum/1").await.status, 200);
    assert_eq!(*keys.lock().unwrap(), ["GET /items/:id", "GET /items/:id"]);
}

#[tokio::test]
async fn h1_one_heavy_client_does_not_take_the_slots_of_others() {
    // Seen to fail: with the lane of `global` for the scope `client`, the second client is refused.
    let held = Held::new();
    let limit = limit(2, |options| options.scope(Scope::Client).identity(Identity::peer()));
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut heavy = Vec::new();
    for _ in 0..2 {
        heavy.push(begin(server, "/").await);
    }
    in_use(&limit, 2).await;
    assert_eq!(ask(server, "/").await.status, 503);
    let mut other = crate::kit::Client::from("127.0.0.2", server).await;
    other.ask("/").await;
    in_use(&limit, 3).await;
    held.release(3);
    assert_eq!(other.answer().await.status, 200);
}

#[tokio::test]
async fn h6_by_default_there_is_one_budget_and_no_line() {
    // Seen to fail: with a default line of one, the second request waits instead of being refused.
    let held = Held::new();
    let limit = limit(1, |options| options);
    let server = serve(held.at("/a").merge(held.at("/b")).layer(limit.clone())).await;
    let mut first = begin(server, "/a").await;
    in_use(&limit, 1).await;
    let refused = ask(server, "/b").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(limit.look().refusals.of(Reason::Busy), 1);
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
}

#[tokio::test]
async fn h6_a_line_without_a_timeout_waits_as_long_as_it_takes() {
    // Seen to fail: with the pass forgotten at the end of the body, the second request is never answered.
    let held = Held::new();
    let limit = limit(1, |options| options.max_queue(1));
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut first = begin(server, "/").await;
    in_use(&limit, 1).await;
    let mut second = begin(server, "/").await;
    waiting(&limit, 1).await;
    assert_eq!(ask(server, "/").await.status, 503, "the line is full");
    held.release(2);
    assert_eq!(first.answer().await.body, "done");
    assert_eq!(second.answer().await.body, "done");
}

#[test]
fn h6_an_option_that_cannot_be_is_named_as_it_was_set() {
    // Seen to fail: with the gate's own words, `max` and `timeout` are wrong, which nobody has set.
    use flowgate::http::{ConcurrencyLimit, ConcurrencyLimitBuilder, Line, RateLimit};
    const MS: std::time::Duration = std::time::Duration::from_millis(1);
    type Set = fn(ConcurrencyLimitBuilder) -> ConcurrencyLimitBuilder;
    let wrong: [(Set, &str); 6] = [
        (|it| it, "`max_concurrent` is not set; accepted: an integer from 1 to 1000000000"),
        (|it| it.max_concurrent(0), "`max_concurrent` is 0; accepted: an integer from 1 to 1000000000"),
        (
            |it| it.max_concurrent(1).max_queue(u32::MAX),
            "`max_queue` is 4294967295; accepted: an integer from 0 to 1000000000",
        ),
        (
            |it| it.max_concurrent(1).queue_timeout(MS),
            "`queue_timeout` is 1ms; accepted: only together with `max_queue`, because by default no request waits",
        ),
        (
            |it| it.max_concurrent(1).max_queue(1).queue_timeout(std::time::Duration::ZERO),
            "`queue_timeout` is 0ns; accepted: a duration above zero and up to 366 days",
        ),
        (
            |it| it.max_concurrent(1).line(Line::Codel { target: MS, interval: MS }),
            "`line` is target 1ms, interval 1ms; accepted: only together with `max_queue`, because by default no request \
             waits",
        ),
    ];
    for (set, expected) in wrong {
        let error = set(ConcurrencyLimit::builder()).build().unwrap_err();
        assert_eq!(error.to_string(), format!("RC5003: option {expected}"));
    }
    let error = RateLimit::builder().build().unwrap_err().to_string();
    assert!(error.starts_with("RC5003: option `rate` is not set"), "{error}");
    let limit = RateLimit::builder().rate(1, "1m").build().unwrap();
    let error = limit.set_limits(flowgate::Limits::builder().max(1).build().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("RC5003: option `rate` is not set"), "{error}");
}

#[tokio::test]
async fn h1_a_key_that_cannot_be_told_is_answered_500_and_holds_nothing() {
    // Seen to fail: with `Front::key` letting the panic through, the connection is reset and nobody has an answer.
    fn tenant(request: &http::request::Parts) -> Option<String> {
        match request.uri.path() {
            "/odd" => panic!("no tenant in it"),
            path => Some(path.to_owned()),
        }
    }
    let hello = || Router::new().fallback(|| async { "hello" });
    let limit = limit(1, |options| options.scope(Scope::by(tenant)));
    let rate = RateLimit::builder().rate(10, "1m").scope(Scope::by(tenant)).build().unwrap();
    let is_exempt = |request: &http::request::Parts| tenant(request).is_none();
    let shed = LoadShed::builder().health(|| 0.0).exempt(is_exempt).build().unwrap();
    for router in [hello().layer(limit.clone()), hello().layer(rate.clone()), hello().layer(shed)] {
        let mut client = crate::kit::Client::connect(serve(router).await).await;
        client.ask("/odd").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("cache-control")), (500, Some("no-store")));
        assert_eq!(answer.json()["type"], "urn:flowgate:error:RC5003");
        assert_eq!(answer.header("flowgate-refusal"), None, "it was not refused: asking again does not help");
        client.ask("/even").await;
        assert_eq!(client.answer().await.status, 200, "on the same connection");
    }
    in_use(&limit, 0).await;
    assert_eq!((limit.look().lanes, rate.look().lanes), (0, 1), "only the other key was counted");
}

#[test]
fn h1_one_budget_has_no_keys_to_bound() {
    // Seen to fail: with `max_keys` looked at for the other scopes only, it is built, and the option does nothing.
    let message = "RC5003: option `max_keys` is 5; accepted: only with a scope that has keys; `global` is a single budget";
    let limit = ConcurrencyLimit::builder().max_concurrent(1).max_keys(5);
    assert_eq!(limit.build().unwrap_err().to_string(), message);
    let rate = || RateLimit::builder().rate(1, "1s").max_keys(5);
    assert_eq!(rate().build().unwrap_err().to_string(), message);
    assert!(rate().scope(Scope::Route).build().is_ok());
}
