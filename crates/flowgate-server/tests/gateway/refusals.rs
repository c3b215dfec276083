//! W2: what one who is refused is told, and what everybody is told of the limits.

use std::{io::Write, thread};

use serde_json::{Value, json};

use crate::{
    client::Client,
    program::Program,
    upstream::{OK, Service},
};

const ROUTE: &str = r#"
[[gateway.route]]
name = "actions"
path = "/actions/{*rest}"
key = { header = "X-Key" }
max = 2
"#;

#[test]
fn w2_over_the_cap_is_429_at_once_in_the_envelope_of_the_seed() {
    // Seen to fail: with `Answer::default()` for the route's own.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let answer = program.post("/actions/refused", "X-Key: one\r\n");
    assert_eq!(answer.first, "HTTP/1.1 429 Too Many Requests");
    assert_eq!(
        answer.json(),
        json!({
            "status": "error",
            "error": {
                "code": "PLATFORM.CONCURRENCY_LIMIT_EXCEEDED",
                "title": "Concurrency limit exceeded.",
                "message": "Maximum concurrent action requests per integration is 2. Currently 2 in flight.",
                "log_url": null,
            }
        })
    );
    for (name, value) in [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("concurrency-limit", "2"),
        ("concurrency-remaining", "0"),
        ("retry-after", "1"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert!(upstream.seen().iter().all(|line| line.starts_with("POST /actions/a ")), "it was never asked");
}

#[test]
fn w2_one_whose_key_has_no_room_is_told_that() {
    // Seen to fail: with the figures and words of a lane that is not there, "Currently 0 in flight" and 2 of 2 remaining.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", &format!("{ROUTE}max_keys = 1\n"));
    let _held = upstream.hold(&program, "/actions/a", "X-Key: one\r\n");
    let answer = program.post("/actions/refused", "X-Key: two\r\n");
    assert_eq!(answer.status(), 503);
    for (name, value) in
        [("flowgate-refusal", "keys-full"), ("concurrency-limit", "2"), ("concurrency-remaining", "0")]
    {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("Too many keys are in use"), "{message}");
}

#[test]
fn w2_each_lane_is_told_of_itself_whoever_was_refused_before() {
    // Seen to fail: with what was told last told again whatever the numbers are.
    let upstream = Service::new();
    let message = "[gateway.route.refusal]\nmessage = \"{in_flight} of {max}\"\n";
    let route = format!("{ROUTE}{message}[[gateway.route.override]]\nkey = \"small\"\nmax = 1\n");
    let program = Program::before(upstream.address, "workers = 1\n", &route);
    let _held = ["small", "large", "large"]
        .map(|key| upstream.hold(&program, "/actions/a", &format!("X-Key: {key}\r\n")));
    for (key, message, limit) in [
        ("small", "1 of 1", "1"),
        ("large", "2 of 2", "2"),
        ("large", "2 of 2", "2"),
        ("small", "1 of 1", "1"),
    ] {
        let answer = program.post("/actions/refused", &format!("X-Key: {key}\r\n"));
        assert_eq!((answer.status(), answer.header("concurrency-limit")), (429, Some(limit)), "{key}");
        assert_eq!(answer.json()["error"]["message"], message, "{key}");
    }
}

#[test]
fn w2_every_response_of_a_limited_route_tells_its_figures() {
    // Seen to fail: with the figures told only to the refused.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let held = upstream.hold(&program, "/actions/a", "X-Key: one\r\n");
    let figures = |headers| {
        let answer = program.post("/actions/b", headers);
        let header = |name| answer.header(name).unwrap_or_default().to_owned();
        (answer.status(), header("concurrency-limit"), header("concurrency-remaining"))
    };
    assert_eq!(figures("X-Key: one\r\n"), (200, "2".to_owned(), "0".to_owned()));
    assert_eq!(figures("X-Key: two\r\n"), (200, "2".to_owned(), "1".to_owned()));
    assert_eq!(held.end().status(), 200);
    assert_eq!(figures("X-Key: one\r\n"), (200, "2".to_owned(), "1".to_owned()));
}

#[test]
fn w2_over_the_rate_is_429_with_a_code_of_its_own() {
    // Seen to fail: with the figures of the rate left out.
    let upstream = Service::new();
    let program =
        Program::before(upstream.address, "", &format!("{ROUTE}rate = {{ limit = 2, period = \"1h\" }}\n"));
    for remaining in ["1", "0"] {
        let answer = program.post("/actions/a", "X-Key: one\r\n");
        assert_eq!((answer.status(), answer.header("ratelimit-remaining")), (200, Some(remaining)));
    }
    let answer = program.post("/actions/a", "X-Key: one\r\n");
    assert_eq!((answer.status(), answer.code().as_str()), (429, "PLATFORM.RATE_LIMIT_EXCEEDED"));
    assert_eq!(answer.header("ratelimit-limit"), Some("2"));
    assert_eq!(answer.header("ratelimit-remaining"), Some("0"));
    let seconds = |name: &str| answer.header(name).and_then(|value| value.parse::<u32>().ok());
    assert!(seconds("ratelimit-reset").is_some_and(|reset| (3_590..=3_601).contains(&reset)), "{answer:?}");
    assert!(seconds("retry-after").is_some_and(|after| (3_590..=3_601).contains(&after)), "{answer:?}");
    assert_eq!(answer.header("concurrency-remaining"), Some("2"), "the slots are free");
    assert_eq!(
        program.post("/actions/a", "X-Key: two\r\n").status(),
        200,
        "another key has a rate of its own"
    );
    assert_eq!(upstream.seen().len(), 3);
}

#[test]
fn w2_the_words_are_those_of_the_configuration() {
    // Seen to fail: with `Answer::envelope()` for the route's own.
    let refusal = "refusal = { status = 503, format = \"problem\", retry_after = 7, title = \"Busy\", \
                   message = \"{in_flight} of {max}\" }\n";
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", &format!("{ROUTE}{refusal}"));
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let answer = program.post("/actions/a", "X-Key: one\r\n");
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("7")));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!((&answer.json()["title"], &answer.json()["detail"]), (&json!("Busy"), &json!("2 of 2")));
}

#[test]
fn w2_a_refusal_reaches_one_who_is_still_sending() {
    // Seen to fail: with the connection closed at once, the answer is lost to a reset.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    for _ in 0..20 {
        let mut client = program.client();
        let body = vec![b'x'; 1 << 20];
        client.ask("POST", "/actions/a", &format!("X-Key: one\r\nContent-Length: {}\r\n", body.len()));
        client.send(&body);
        assert_eq!(client.read().status(), 429);
    }
}

#[test]
fn w2_one_who_sends_a_short_body_behind_its_head_can_ask_again_after_a_refusal() {
    // Seen to fail: with every body that is not there yet left unread: the connection is closed, and under overload
    // everybody opens another one.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let mut client = program.client();
    for _ in 0..3 {
        client.ask("POST", "/actions/a", "X-Key: one\r\nContent-Length: 5\r\n");
        let answer = client.read();
        assert_eq!((answer.status(), answer.header("connection")), (429, None), "it is told at once");
        client.send("he");
        client.send("lloGET /actions/b HTTP/1.1\r\nHost: gateway.test\r\nX-Key: one\r\n\r\n");
        assert_eq!(client.read().status(), 429, "what follows the body is the next request");
    }
    for more in ["Content-Length: 70000\r\n", "Content-Length: 5\r\nExpect: 100-continue\r\n"] {
        client.ask("POST", "/actions/a", &format!("X-Key: one\r\n{more}"));
        let answer = client.read();
        assert_eq!((answer.status(), answer.header("connection")), (429, Some("close")), "{more}");
        client = program.client();
    }
}

#[test]
fn w2_nobody_waits_for_ever_for_a_body_that_nobody_wants() {
    // Seen to fail: with `watch.wait()` for the deadline in `Client::forget`.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "idle_timeout = \"1s\"\n", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let mut client = program.client();
    client.ask("POST", "/actions/a", "X-Key: one\r\nContent-Length: 5\r\n");
    assert_eq!(client.read().status(), 429);
    client.send("he");
    assert!(client.ends());
}

#[test]
fn w2_one_whose_unwanted_body_has_come_has_as_long_to_ask_again_as_any_other() {
    // Seen to fail: with the end of the body seen only when the next request follows it: the connection is closed after
    // 5 seconds.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let mut client = program.client();
    client.ask("POST", "/actions/a", "X-Key: one\r\nContent-Length: 5\r\n");
    assert_eq!(client.read().status(), 429);
    client.send("hello");
    program.until("it is at rest", |figures| figures["resting"] == 1);
    client.ask("POST", "/actions/b", "X-Key: two\r\n");
    assert_eq!(client.read().status(), 200);
}

#[test]
fn w2_one_who_sends_a_body_that_nobody_wants_byte_by_byte_gains_no_time() {
    // Seen to fail: with `Stage::Streaming` in `Client::forget`, where each byte begins the time anew.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "idle_timeout = \"500ms\"\n", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let mut slow = program.client();
    slow.ask("POST", "/actions/a", "X-Key: one\r\nContent-Length: 65536\r\n");
    assert_eq!(slow.read().status(), 429);
    // Each byte after the gateway had time to read the one before.
    thread::scope(|scope| {
        let (mut sender, program) = (slow.share(), &program);
        scope.spawn(move || {
            while sender.write_all(b"x").is_ok() {
                program.figures();
            }
        });
        let has_ended = slow.ends();
        drop(slow);
        assert!(has_ended);
    });
}

/// A second route, with a line.
const LINE: &str = "[[gateway.route]]\nname = \"line\"\npath = \"/line/{*rest}\"\nmax = 1\nmax_queue = 10\n";

/// One who was refused before its body came, and sent that and its next request at once.
fn refused_and_asking(program: &Program, target: &str, headers: &str) -> Client {
    let mut client = program.client();
    client.ask("POST", "/actions/a", "X-Key: one\r\nContent-Length: 5\r\n");
    assert_eq!(client.read().status(), 429);
    client.send(format!("helloPOST {target} HTTP/1.1\r\nHost: gateway.test\r\n{headers}\r\n"));
    client
}

/// Lets more time pass than a connection on which nothing is under way has before it comes to rest.
fn another_comes_to_rest(program: &Program) -> Client {
    let mut other = program.client();
    other.ask("POST", "/actions/other", "X-Key: other\r\n");
    assert_eq!(other.read().status(), 200);
    program.until("it is at rest", |figures| figures["resting"] == 1);
    other
}

#[test]
fn w2_a_request_behind_a_body_that_nobody_wanted_has_all_of_its_time() {
    // Seen to fail: with the end of the body taken for the end of all that is under way: 504 after a second.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "workers = 1\n", ROUTE);
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    // It leaves a connection to the upstream behind, so that the next one waits for nothing but its answer.
    assert_eq!(program.post("/actions/b", "X-Key: two\r\n").status(), 200);
    let mut client = refused_and_asking(&program, "/actions/b", "X-Key: two\r\nX-Hold: yes\r\n");
    let mut asked = upstream.held();
    let _other = another_comes_to_rest(&program);
    asked.try_send(OK);
    assert_eq!(client.read().status(), 200);
}

#[test]
fn w2_a_request_behind_a_body_that_nobody_wanted_keeps_its_place_in_line() {
    // Seen to fail: with the end of the body taken for the end of all that is under way: it is dropped, and never answered.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "workers = 1\n", &format!("{ROUTE}{LINE}"));
    let _held: Vec<_> = (0..2).map(|_| upstream.hold(&program, "/actions/a", "X-Key: one\r\n")).collect();
    let first = upstream.hold(&program, "/line/a", "");
    let mut client = refused_and_asking(&program, "/line/b", "");
    let waiting = |figures: &Value| figures["routes"][1]["waiting"].clone();
    program.until("it is in line", |figures| waiting(figures) == 1);
    let _other = another_comes_to_rest(&program);
    assert_eq!(waiting(&program.figures()), 1, "it is still there");
    assert_eq!(first.end().status(), 200);
    assert_eq!(client.read().status(), 200);
}

#[test]
fn a_key_that_is_too_long_is_400_and_the_upstream_is_not_asked() {
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let post = |length: usize| program.post("/actions/a", &format!("X-Key: {}\r\n", "k".repeat(length)));
    assert_eq!(post(1024).status(), 200);
    let refused = post(1025);
    assert_eq!(refused.status(), 400);
    assert!(refused.text().contains("longer than 1024 bytes"), "{}", refused.text());
    assert_eq!(upstream.seen().len(), 1);
}
