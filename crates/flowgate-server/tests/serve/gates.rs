//! What the gates promise to those who send requests.

use std::thread;

use serde_json::{Value, json};

use crate::{client::Answer, server::Server};

/// A refusal is told the same way whoever refused, and can be read by a program.
fn refused(answer: &Answer, status: u16, code: &str, reason: &str) -> Value {
    let problem = answer.json();
    assert_eq!(answer.status, status, "{problem}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(problem["status"], status);
    assert_eq!(problem["code"], code);
    assert_eq!(problem["reason"], reason);
    assert!(problem["title"].is_string());
    assert!(problem["detail"].as_str().is_some_and(|text| text.starts_with(code)), "{problem}");
    problem
}

fn gauge(answer: &Answer) -> (u32, u32) {
    let read = |name| answer.header(name).unwrap_or_else(|| panic!("no {name}")).parse().expect("a number");
    (read("concurrency-limit"), read("concurrency-remaining"))
}

#[test]
fn g1_never_more_than_max_are_in_flight_while_thirty_requests_run() {
    // Seen to fail: with the gate built for one more than `--max`, figures show 4.
    let server = Server::start(&["--max", "3", "--queue", "30", "--timeout", "20s"]);
    thread::scope(|scope| {
        let requests: Vec<_> = (0..30).map(|_| scope.spawn(|| server.get("/work?ms=40"))).collect();
        while !requests.iter().all(|request| request.is_finished()) {
            let work = &server.figures()["work"];
            assert!(work["in_use"].as_u64().expect("a number") <= 3, "{work}");
        }
        for request in requests {
            let answer = request.join().expect("no request panics");
            assert_eq!((answer.status, answer.json()["worked_ms"].as_u64()), (200, Some(40)));
            let (limit, remaining) = gauge(&answer);
            assert!(limit == 3 && remaining < 3, "its own pass is counted: {remaining} of {limit}");
        }
    });
    let work = &server.settle("work", 0, 0)["work"];
    assert_eq!((&work["peak"], &work["admitted"], &work["refused"]), (&json!(3), &json!(30), &json!(0)));
}

#[test]
fn g3_a_full_line_is_told_with_everything_a_client_needs() {
    // Seen to fail: with the gauge left out of the refusal, there is no `Concurrency-Limit`.
    let server = Server::start(&["--max", "1", "--queue", "1", "--timeout", "20s"]);
    let _in_flight = server.send("/work?ms=10000");
    server.settle("work", 1, 0);
    let _in_line = server.send("/work?ms=10000");
    server.settle("work", 1, 1);

    let answer = server.get("/work?ms=0");
    let problem = refused(&answer, 503, "RC5026", "queue-full");
    assert_eq!(problem["title"], "Service Unavailable");
    assert_eq!(problem["detail"], "RC5026: gate `work` refused: queue-full (1 in use of 1, 1 waiting)");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(gauge(&answer), (1, 0));
    assert_eq!(server.figures()["work"]["refusals"]["queue-full"], 1);
}

#[test]
fn g3_nobody_waits_longer_than_the_timeout() {
    // Seen to fail: without `timeout` on the gate, the second one waits for ten seconds and is let in.
    let server = Server::start(&["--max", "1", "--timeout", "50ms"]);
    let _in_flight = server.send("/work?ms=10000");
    server.settle("work", 1, 0);
    let answer = server.get("/work?ms=0");
    refused(&answer, 503, "RC5026", "queue-timeout");
    assert_eq!(answer.header("retry-after"), Some("1"));
    server.settle("work", 1, 0);
}

#[test]
fn g3_with_a_queue_of_zero_nobody_waits() {
    // Seen to fail: with `queue(0)` handed to the gate, the server does not start.
    let server = Server::start(&["--max", "1", "--queue", "0"]);
    let _in_flight = server.send("/work?ms=10000");
    server.settle("work", 1, 0);
    refused(&server.get("/work"), 503, "RC5026", "busy");
}

#[test]
fn g4_a_client_that_hangs_up_leaves_the_line_and_gives_its_slot_back() {
    // Seen to fail: with the handler's work in a spawned task, the line stays as long as it was.
    let server = Server::start(&["--max", "1", "--timeout", "20s"]);
    let in_flight = server.send("/work?ms=10000");
    server.settle("work", 1, 0);
    let in_line = [server.send("/work?ms=10000"), server.send("/work?ms=10000")];
    server.settle("work", 1, 2);
    drop(in_line);
    server.settle("work", 1, 0);
    drop(in_flight);
    let work = &server.settle("work", 0, 0)["work"];
    assert_eq!((&work["admitted"], &work["refused"]), (&json!(1), &json!(0)), "nobody was let in or refused");
    assert_eq!(server.get("/work?ms=0").status, 200);
}

#[test]
fn g9_a_spent_rate_says_when_to_come_back_and_is_each_tenants_own() {
    // Seen to fail: with every refusal told as 503.
    let server = Server::start(&["--rate", "2", "--period", "1m"]);
    for _ in 0..2 {
        let answer = server.get("/tenant/acme?ms=0");
        assert_eq!((answer.status, &answer.json()["tenant"]), (200, &json!("acme")));
    }
    let answer = server.get("/tenant/acme?ms=0");
    let problem = refused(&answer, 429, "RC5013", "rate");
    assert_eq!(problem["title"], "Too Many Requests");
    let retry_after: u32 = answer.header("retry-after").expect("one is told").parse().expect("seconds");
    assert!((30..=60).contains(&retry_after), "{retry_after}");
    assert_eq!(gauge(&answer), (4, 4));
    assert_eq!(server.get("/tenant/globex?ms=0").status, 200, "another tenant has its own");

    let tenants = &server.settle("tenants", 0, 0)["tenants"];
    assert_eq!(tenants["refusals"]["rate"], 1);
    let lanes = tenants["shown"].as_array().expect("a list");
    let left: Vec<_> = lanes.iter().map(|lane| (&lane["key"], &lane["rate"]["remaining"])).collect();
    assert_eq!(left, [(&json!("acme"), &json!(0)), (&json!("globex"), &json!(1))]);
}

#[test]
fn g6_each_tenant_has_a_lane_of_its_own() {
    // Seen to fail: with one key for all, acme is refused and its own lane is empty.
    let server = Server::start(&["--max", "1"]);
    let _in_flight = server.send("/tenant/acme?ms=10000");
    server.settle("tenants", 1, 0);
    let answer = server.get("/tenant/acme?ms=0");
    refused(&answer, 503, "RC5026", "busy");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(gauge(&answer), (1, 0));
    let answer = server.get("/tenant/sm%C3%B8r%20%2F%20br%C3%B8d?ms=0");
    assert_eq!((answer.status, &answer.json()["tenant"]), (200, &json!("smør / brød")));
    assert_eq!(gauge(&answer), (1, 0), "its own pass is counted");
}

#[test]
fn s2_bad_input_is_named_with_what_is_accepted_and_changes_nothing() {
    // Seen to fail: with `ms` read by `unwrap_or_default`, every one of its lines is a 200.
    let server = Server::start(&[]);
    let long = format!("/tenant/{}", "k".repeat(257));
    let table = [
        ("/work?ms=abc", "ms", "`ms` is \"abc\"; accepted: a whole number from 0 to 10000"),
        ("/work?ms=", "ms", "`ms` is \"\"; accepted: a whole number from 0 to 10000"),
        ("/work?ms=-1", "ms", "`ms` is \"-1\"; accepted: a whole number from 0 to 10000"),
        ("/work?ms=1.5", "ms", "`ms` is \"1.5\"; accepted: a whole number from 0 to 10000"),
        ("/work?ms=10001", "ms", "`ms` is \"10001\"; accepted: a whole number from 0 to 10000"),
        ("/work?ms=1&ms=2", "query", "`query` is \"ms=1&ms=2\"; accepted: `ms`, once, or nothing"),
        ("/work?sm=1", "query", "`query` is \"sm=1\"; accepted: `ms`, once, or nothing"),
        (
            "/tenant/a?ms=99999999999",
            "ms",
            "`ms` is \"99999999999\"; accepted: a whole number from 0 to 10000",
        ),
        (&long, "key", "`key` is 257 bytes long; accepted: text of at most 256 bytes"),
        (
            "/tenant/%ff",
            "key",
            "`key` is \"/tenant/%ff\"; accepted: text in UTF-8, percent-encoded where needed",
        ),
    ];
    for (target, field, detail) in table {
        let answer = server.get(target);
        let problem = json!({"title": "Bad Request", "status": 400, "detail": detail, "field": field});
        assert_eq!((answer.status, answer.json()), (400, problem), "{target}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(server.get(&format!("/tenant/{}?ms=0", "k".repeat(256))).status, 200, "256 bytes are fine");
    assert_eq!(server.get("/nowhere").status, 404);
    let figures = server.figures();
    assert_eq!((&figures["work"]["admitted"], &figures["work"]["refused"]), (&json!(0), &json!(0)));
    assert_eq!((&figures["tenants"]["admitted"], &figures["tenants"]["refused"]), (&json!(1), &json!(0)));
}
