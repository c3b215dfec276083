//! H4: what the refused are told; H5: what everybody is told.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::get};
use flowgate::{
    Reason,
    http::{Answer, ConcurrencyLimit, Figures, Format, RateLimit, Scope, Wording},
};
use flowgate_testkit::FakeClock;
use http::StatusCode;
use serde_json::json;

use crate::kit::{self, Held, ask, ask_with, begin, in_use, limit, serve, until};

/// The refusal of a full layer with one slot.
async fn refusal(limit: &ConcurrencyLimit, headers: &str) -> kit::Answer {
    let held = Held::new();
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut first = begin(server, "/").await;
    in_use(limit, 1).await;
    let refused = ask_with(server, "/", headers).await;
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
    refused
}

#[tokio::test]
async fn h4_a_refusal_is_a_problem_document_that_nobody_keeps() {
    // Seen to fail: without `no-store`; with the reason left out of the body; with the message not escaped.
    let refused = refusal(&limit(1, |options| options.message("Server is \"busy\".\nRetry.")), "").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("flowgate-refusal"), Some("busy"));
    assert_eq!(
        refused.json(),
        json!({
            "type": "urn:flowgate:error:RC5026",
            "title": "Too many requests in flight",
            "status": 503,
            "detail": "Server is \"busy\".\nRetry.",
            "code": "RC5026",
            "reason": "busy",
        })
    );
}

#[tokio::test]
async fn h4_the_envelope_of_the_gateway_by_choice() {
    // Seen to fail: without `log_url`, which the vendor's client asks for.
    let refused = refusal(&limit(1, |options| options.answer(Answer::envelope())), "").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(
        refused.json(),
        json!({
            "status": "error",
            "error": {
                "code": "PLATFORM.CONCURRENCY_LIMIT_EXCEEDED",
                "title": "Concurrency limit exceeded.",
                "message": "Maximum concurrent action requests per integration is 1. Currently 1 in flight.",
                "log_url": null,
            },
        })
    );
}

#[tokio::test]
async fn h4_retry_after_says_what_was_set_and_zero_omits_it() {
    // Seen to fail: with `whole_seconds` rounding down, 1.5 s become 1; with no check for zero, the header says 1.
    for (retry_after, header) in [(5_000, Some("5")), (1_500, Some("2")), (10, Some("1")), (0, None)] {
        let limit = limit(1, |options| options.retry_after(Duration::from_millis(retry_after)));
        assert_eq!(refusal(&limit, "").await.header("retry-after"), header);
    }
    let never = limit(1, |options| options.retry_after(Duration::MAX));
    assert_eq!(refusal(&never, "").await.header("retry-after"), Some("18446744073709551615"));
}

#[tokio::test]
async fn h4_status_and_words_can_be_chosen() {
    // Seen to fail: with `over_max` ignored.
    let words =
        Wording::new("BUSY", "Busy", "{in_flight} of {max}, {waiting} waiting, {retry_after} s").unwrap();
    let answer = Answer::default().status(StatusCode::TOO_MANY_REQUESTS).unwrap().format(Format::Envelope);
    let refused = refusal(&limit(1, |options| options.answer(answer.over_max(words))), "").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "BUSY");
    assert_eq!(refused.json()["error"]["message"], "1 of 1, 0 waiting, 1 s");
}

#[tokio::test]
async fn h4_grpc_is_refused_in_its_own_way() {
    // Seen to fail: with `is_grpc` false, the status is 503 and the body a problem document; with only `application/grpc`
    // itself known, as well.
    let grpc = "content-type: application/grpc+proto\r\n";
    let refused = refusal(&limit(1, |options| options.message("100% busy")), grpc).await;
    assert_eq!((refused.status, refused.body.as_str()), (200, ""));
    assert_eq!(refused.header("grpc-status"), Some("14"));
    assert_eq!(refused.header("grpc-message"), Some("100%25 busy"));
    let answer = Answer::default().status(StatusCode::TOO_MANY_REQUESTS).unwrap();
    let refused = refusal(&limit(1, |options| options.answer(answer)), grpc).await;
    assert_eq!(refused.header("grpc-status"), Some("8"));
}

#[tokio::test]
async fn h4_a_hook_hears_of_each_refusal_and_its_panic_changes_nothing() {
    // Seen to fail: without `catch_unwind`, the connection is closed and the client has no answer.
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    let limit = limit(1, |options| {
        options.scope(Scope::Route).on_reject(move |rejected| {
            let flowgate::http::Rejected { key, reason, active, queued, .. } = *rejected;
            told.lock().unwrap().push((key.to_owned(), reason, active, queued));
            panic!("a hook that fails");
        })
    });
    assert_eq!(refusal(&limit, "").await.status, 503);
    assert_eq!(*heard.lock().unwrap(), [("GET /".to_owned(), Reason::Busy, 1, 0)]);
}

#[test]
fn h4_wrong_words_and_statuses_are_build_errors() {
    // Seen to fail: without the check of braces, of the status or of the path, a layer is built; with the last mistake kept
    // instead of the first.
    let build = |options: flowgate::http::ConcurrencyLimitBuilder| options.build().unwrap_err().to_string();
    let start = || ConcurrencyLimit::builder().max_concurrent(1);
    assert_eq!(
        build(start().message("at most {maximum}")),
        "RC5003: option `message` is \"at most {maximum}\"; accepted: text without braces other than {max}, {in_flight}, \
            {waiting} and {retry_after}"
    );
    assert_eq!(
        build(start().status(StatusCode::OK)),
        "RC5003: option `status` is 200; accepted: a status from 400 to 599, like 503 or 429"
    );
    assert_eq!(
        build(start().exempt_path("healthz")),
        "RC5003: option `exempt_path` is \"healthz\"; accepted: a path like `/healthz`, or a path and everything below it \
            like `/internal/*`"
    );
    assert!(build(ConcurrencyLimit::builder()).contains("max"));
    let both = start().exempt_path("healthz").status(StatusCode::OK);
    assert!(build(both).contains("`exempt_path`"), "the first mistake is told");
}

#[tokio::test]
async fn h5_every_response_tells_the_limit_and_what_remains() {
    // Seen to fail: without `tell_standing`, only refusals have figures; without `tell` in `refuse`, they have none.
    let held = Held::new();
    let limit = limit(3, |options| options);
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut first = begin(server, "/").await;
    let mut second = begin(server, "/").await;
    in_use(&limit, 2).await;
    held.release(1);
    let (answer, mut other) = tokio::select! {
        answer = first.answer() => (answer, second),
        answer = second.answer() => (answer, first),
    };
    // While the answer was written two were in flight, the one it belongs to among them.
    assert_eq!(answer.header("concurrency-limit"), Some("3"));
    assert_eq!(answer.header("concurrency-remaining"), Some("1"));
    assert_eq!(answer.list("ratelimit-policy"), "\"concurrency\";q=3;qu=\"concurrent-requests\"");
    assert_eq!(answer.list("ratelimit"), "\"concurrency\";r=1");
    held.release(1);
    assert_eq!(other.answer().await.header("concurrency-remaining"), Some("2"));
    let refused = refusal(&self::limit(1, |options| options), "").await;
    assert_eq!(refused.header("concurrency-limit"), Some("1"));
    assert_eq!(refused.header("concurrency-remaining"), Some("0"));
}

#[tokio::test]
async fn h5_a_rate_tells_its_window_and_both_kinds_stand_side_by_side() {
    // Seen to fail: with `insert` instead of `append` for the IETF pair, the outer layer hides the inner one's item.
    let clock = FakeClock::new();
    let rate = RateLimit::builder().rate(2, "1m").clock(clock.clone()).build().unwrap();
    let limit = limit(5, |options| options);
    let router = Router::new().route("/", get(|| async { "" })).layer(rate).layer(limit.clone());
    let server = serve(router).await;
    let first = ask(server, "/").await;
    assert_eq!(first.header("ratelimit-limit"), Some("2"));
    assert_eq!(first.header("ratelimit-remaining"), Some("1"));
    assert_eq!(first.header("ratelimit-reset"), Some("60"));
    assert_eq!(
        first.list("ratelimit-policy"),
        "\"rate\";q=2;w=60, \"concurrency\";q=5;qu=\"concurrent-requests\""
    );
    assert_eq!(first.list("ratelimit"), "\"rate\";r=1;t=60, \"concurrency\";r=4");
    clock.advance(Duration::from_millis(15_500));
    assert_eq!(ask(server, "/").await.header("ratelimit-remaining"), Some("0"));
    let refused = ask(server, "/").await;
    assert_eq!((refused.status, refused.header("ratelimit-reset")), (429, Some("45")));
    assert_eq!(refused.header("retry-after"), Some("45"), "rounded up, never down");
    assert_eq!(refused.header("flowgate-refusal"), Some("rate"));
    assert_eq!(refused.json()["code"], "RC5013");
    assert_eq!(refused.header("concurrency-remaining"), Some("4"));
    until("nothing held", || limit.look().in_use == 0).await;
}

#[tokio::test]
async fn h5_headers_can_be_switched_off() {
    // Seen to fail: with `has_figures` ignored by `tell`, by `spend` and by the rate's `refuse`.
    let refused = refusal(&limit(1, |options| options.headers(false)), "").await;
    assert_eq!((refused.status, refused.header("concurrency-limit")), (503, None));
    assert_eq!(refused.header("ratelimit"), None);
    let rate = RateLimit::builder().rate(1, "1h").headers(false).build().unwrap();
    let server = serve(Router::new().route("/", get(|| async { "" })).layer(rate)).await;
    for status in [200, 429] {
        let answer = ask(server, "/").await;
        assert_eq!((answer.status, answer.header("ratelimit-limit")), (status, None));
        assert_eq!(answer.header("ratelimit"), None);
    }
}

#[tokio::test]
async fn h5_a_bucket_tells_its_burst_and_has_no_window() {
    // Seen to fail: with the rate for the limit of a bucket; with a window for every shape; with one left of a spent rate; with
    // the second response told to come back when the bucket is full, which is after two seconds.
    let clock = FakeClock::new();
    let rate = RateLimit::builder().rate(60, "1m").burst(2).clock(clock.clone()).build().unwrap();
    let server = serve(Router::new().route("/", get(|| async { "" })).layer(rate)).await;
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let answer = ask(server, "/").await;
        assert_eq!((answer.status, answer.header("ratelimit-remaining")), (status, Some(remaining)));
        assert_eq!(answer.header("ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("ratelimit-reset"), Some("1"), "one is full again, or may start");
        assert_eq!(answer.list("ratelimit-policy"), "\"rate\";q=2");
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        ask(server, "/").await.header("ratelimit-remaining"),
        Some("0"),
        "one came back, and was spent"
    );
}

#[tokio::test]
async fn h5_of_two_gates_of_a_kind_the_outermost_is_told() {
    // Seen to fail: with `append` for `Concurrency-Limit` or `ratelimit-limit`, a client reads two numbers.
    let rate = |count| RateLimit::builder().rate(count, "1h").build().unwrap();
    let router = Router::new().route("/", get(|| async { "" })).layer(limit(7, |options| options));
    let router = router.layer(limit(5_000, |options| options)).layer(rate(8)).layer(rate(9));
    let answer = ask(serve(router).await, "/").await;
    assert_eq!(answer.list("concurrency-limit"), "5000");
    assert_eq!(answer.list("concurrency-remaining"), "4999");
    assert_eq!(
        (answer.list("ratelimit-limit"), answer.list("ratelimit-remaining")),
        ("9".into(), "8".into())
    );
    assert_eq!(
        answer.list("ratelimit"),
        "\"concurrency\";r=6, \"concurrency\";r=4999, \"rate\";r=7;t=3600, \"rate\";r=8;t=3600"
    );
}

#[tokio::test]
async fn h5_policies_are_those_of_this_response_and_not_of_the_last() {
    // Seen to fail: with what was last written kept for another kind, another window or another number.
    let rate = |count, period| RateLimit::builder().rate(count, period).build().unwrap();
    let router = Router::new().route("/", get(|| async { "" })).layer(rate(8, "1h")).layer(rate(9, "1h"));
    let router = router.layer(rate(9, "1m")).layer(limit(9, |options| options));
    let server = serve(router).await;
    for _ in 0..2 {
        assert_eq!(
            ask(server, "/").await.list("ratelimit-policy"),
            "\"rate\";q=8;w=3600, \"rate\";q=9;w=3600, \"rate\";q=9;w=60, \
             \"concurrency\";q=9;qu=\"concurrent-requests\""
        );
    }
}

#[test]
fn h5_several_figures_at_once_are_written_as_one_by_one() {
    // Seen to fail: with no comma between items; with a list of another length taken for the last one; with headers for none.
    let limits = flowgate::Limits::builder().rate(1_100, "1500ms").build().unwrap();
    let spent = Figures::of_spent_rate(limits.rate().unwrap(), Duration::from_millis(1_200));
    let rested = Figures::of_rested_rate(limits.rate().unwrap());
    let written = |figures: &[Figures]| {
        let mut headers = http::HeaderMap::new();
        Figures::write_all(figures, &mut headers);
        let list = |name| {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join("; ")
        };
        (list("ratelimit-policy"), list("ratelimit"), list("ratelimit-remaining"))
    };
    let (one, both) = ("\"rate\";q=1100;w=2", "\"rate\";q=1100;w=2, \"rate\";q=1100;w=2");
    assert_eq!(written(&[spent]), (one.into(), "\"rate\";r=0;t=2".into(), "0".into()));
    let states = "\"rate\";r=0;t=2, \"rate\";r=1100;t=0";
    assert_eq!(written(&[spent, rested]), (both.into(), states.into(), "1100".into()));
    assert_eq!(written(&[]), (String::new(), String::new(), String::new()));
}

#[test]
fn h5_a_rate_of_which_nothing_is_spent_has_all_of_it() {
    // Seen to fail: with nothing remaining in `of_rested_rate`.
    let limits = flowgate::Limits::builder().rate(60, "1m").build().unwrap();
    let mut headers = http::HeaderMap::new();
    Figures::of_rested_rate(limits.rate().unwrap()).write(&mut headers);
    assert_eq!(headers["ratelimit"], "\"rate\";r=60;t=0");
    assert_eq!(headers["ratelimit-policy"], "\"rate\";q=60;w=60");
}
