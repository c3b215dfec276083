//! H4: the text of a refusal, in each of its forms; no server needed.

use std::time::Duration;

use bytes::Bytes;
use flowgate::{
    Gate, Reason, Refusal,
    http::{Answer, Figures, Format, Wording},
};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use serde_json::{Value, json};

/// What a full gate says, as if for this reason.
fn refused_for(reason: Reason) -> Refusal {
    let gate = Gate::builder().max(1).reject().build().unwrap();
    let held = gate.try_enter().unwrap();
    let mut refusal = gate.try_enter().unwrap_err();
    drop(held);
    refusal.reason = reason;
    refusal
}

fn plain() -> HeaderMap {
    HeaderMap::new()
}

fn grpc() -> HeaderMap {
    [(http::header::CONTENT_TYPE, "application/grpc".parse().unwrap())].into_iter().collect()
}

fn header<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[test]
fn h4_what_is_nobodys_budget_is_503_whatever_the_status() {
    // Seen to fail: with any of the four reasons taken out of `is_budget`, it is answered 429.
    let answer = Answer::default().status(StatusCode::TOO_MANY_REQUESTS).unwrap();
    for reason in Reason::ALL {
        let is_budget =
            !matches!(reason, Reason::KeysFull | Reason::Paused | Reason::Closed | Reason::Unreachable);
        let response = answer.refuse(&refused_for(reason), &plain());
        assert_eq!(response.status().as_u16(), if is_budget { 429 } else { 503 }, "{reason}");
        assert_eq!(header(&response, "flowgate-refusal"), Some(reason.as_str()));
        assert_eq!(body(&response)["status"], response.status().as_u16());
        let response = answer.refuse(&refused_for(reason), &grpc());
        assert_eq!(header(&response, "grpc-status"), Some(if is_budget { "8" } else { "14" }), "{reason}");
    }
}

#[test]
fn h4_a_full_table_of_keys_is_told_as_such() {
    // Seen to fail: with the words of a full lane, "Maximum concurrent action requests per integration is 1. Currently 1".
    let refusal = refused_for(Reason::KeysFull);
    for (answer, message) in [
        (
            Answer::envelope(),
            "Too many keys are in use at once, and yours is not among them. Please retry shortly.",
        ),
        (Answer::envelope().message("come back").unwrap(), "come back"),
    ] {
        let response = answer.refuse(&refusal, &plain());
        let error = &body(&response)["error"];
        assert_eq!(
            (response.status().as_u16(), &error["message"], &error["code"]),
            (503, &json!(message), &json!("PLATFORM.CONCURRENCY_LIMIT_EXCEEDED"))
        );
    }
    let own = Wording::new("MINE", "Full", "{in_flight} of {max}").unwrap();
    let response = Answer::envelope().over_max(own).refuse(&refusal, &plain());
    let error = &body(&response)["error"];
    assert_eq!((&error["code"], &error["title"]), (&json!("MINE"), &json!("Too many keys in use")));
}

#[test]
fn h4_a_rate_has_words_of_its_own() {
    // Seen to fail: with `over_max` for every refusal; with the refusal's `retry_after` left out; without `max(1)`.
    let mut refusal = refused_for(Reason::Rate);
    refusal.retry_after = Some(Duration::from_millis(6_100));
    let response = Answer::default().refuse(&refusal, &plain());
    assert_eq!(header(&response, "retry-after"), Some("7"));
    assert_eq!(
        body(&response),
        json!({
            "type": "urn:flowgate:error:RC5013",
            "title": "Rate limit exceeded",
            "status": 503,
            "detail": "Too many requests. Please retry after 7 s.",
            "code": "RC5013",
            "reason": "rate",
        })
    );
    refusal.retry_after = Some(Duration::ZERO);
    let response = Answer::envelope().refuse(&refusal, &plain());
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "retry-after"), Some("1"), "a client that comes back at once is too early");
    assert_eq!(
        body(&response)["error"],
        json!({
            "code": "PLATFORM.RATE_LIMIT_EXCEEDED",
            "title": "Rate limit exceeded.",
            "message": "Too many requests in the current window. Retry after 1 s.",
            "log_url": null,
        })
    );
}

#[test]
fn h4_the_message_is_for_every_limit_and_wordings_are_for_one() {
    // Seen to fail: with `message` set for one kind only; with `over_rate` ignored; with `None` for `max` written as 0.
    let answer = Answer::default().message("{in_flight}/{max}").unwrap();
    let mut refusal = refused_for(Reason::Busy);
    assert_eq!(body(&answer.refuse(&refusal, &plain()))["detail"], "1/1");
    refusal.reason = Reason::Rate;
    assert_eq!(body(&answer.refuse(&refusal, &plain()))["detail"], "1/1");
    let words = Wording::new("SLOW", "Slow down", "{waiting} wait, at most {max}").unwrap();
    let answer = answer.over_rate(words);
    (refusal.max, refusal.waiting) = (None, 3);
    assert_eq!(body(&answer.refuse(&refusal, &plain()))["title"], "Slow down");
    assert_eq!(body(&answer.refuse(&refusal, &plain()))["detail"], "3 wait, at most unlimited");
    refusal.reason = Reason::Busy;
    assert_eq!(body(&answer.refuse(&refusal, &plain()))["detail"], "1/unlimited");
}

#[test]
fn h4_grpc_messages_are_percent_encoded() {
    // Seen to fail: with any of the ranges taken out, or with `{byte:X}`, which writes a line feed as `%A`.
    let answer = Answer::default().message("100% \u{e9}~\n\u{7f}.").unwrap();
    let response = answer.refuse(&refused_for(Reason::Busy), &grpc());
    assert_eq!(header(&response, "grpc-message"), Some("100%25 %C3%A9~%0A%7F."));
    assert_eq!(header(&response, "content-type"), Some("application/grpc"));
    assert_eq!(header(&response, "cache-control"), Some("no-store"));
    assert_eq!(header(&response, "retry-after"), Some("1"));
    assert!(response.body().is_empty());
}

#[test]
fn h4_any_words_are_valid_json() {
    // Seen to fail: with any of `code`, `title` and `message` not escaped, in either form; with a backslash alone, or a control
    // character, taken for plain; with fewer than four digits after `\u`.
    for odd in ["\"quoted\" \\ \n\ttab \u{0} \u{1f} \u{7f} \u{e9} \u{1f600}", "back\\slash", "\u{1}2", "\""] {
        let words = Wording::new(odd, odd, odd).unwrap();
        let answer = Answer::default().over_max(words);
        let problem = body(&answer.refuse(&refused_for(Reason::Busy), &plain()));
        assert_eq!(problem["type"], format!("urn:flowgate:error:{odd}"));
        assert_eq!((&problem["title"], &problem["detail"]), (&json!(odd), &json!(odd)));
        let envelope = body(&answer.format(Format::Envelope).refuse(&refused_for(Reason::Busy), &plain()));
        let error = json!({ "code": odd, "title": odd, "message": odd, "log_url": null });
        assert_eq!(envelope, json!({ "status": "error", "error": error }));
    }
}

#[test]
fn h4_another_failure_has_the_same_form() {
    // Seen to fail: with the two forms exchanged in `fail`.
    let status = StatusCode::GATEWAY_TIMEOUT;
    let response = Answer::default().fail(status, "X1", "Late", "It \"hangs\".");
    assert_eq!((response.status(), header(&response, "cache-control")), (status, Some("no-store")));
    let problem = json!({
        "type": "urn:flowgate:error:X1", "title": "Late", "status": 504, "detail": "It \"hangs\".",
    });
    assert_eq!(body(&response), problem);
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    let response = Answer::envelope().fail(status, "X1", "Late", "It \"hangs\".");
    let error = json!({ "code": "X1", "title": "Late", "message": "It \"hangs\".", "log_url": null });
    assert_eq!(body(&response), json!({ "status": "error", "error": error }));
    assert_eq!((response.status(), header(&response, "flowgate-refusal")), (status, None));
}

#[test]
fn h4_every_brace_and_every_status_is_checked() {
    // Seen to fail: with the first place alone checked; with 429 as the only client error that is accepted.
    for message in ["{max} of {maximum}", "{", "}", "{max", "max}", "{}", "{{max}}", "{ max }"] {
        assert!(Wording::new("C", "T", message).is_err(), "{message}");
    }
    assert!(Wording::new("C", "T", "{max}{in_flight} {waiting}, {retry_after}{max}").is_ok());
    for (status, is_accepted) in [(399, false), (400, true), (418, true), (599, true), (600, false)] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(Answer::default().status(status).is_ok(), is_accepted, "{status}");
    }
}

/// The lines of a head, as a map.
fn read(text: &[u8]) -> HeaderMap {
    let text = str::from_utf8(text).unwrap();
    assert!(text.is_empty() || text.ends_with("\r\n"), "{text:?}");
    let lines = text.lines().map(|line| line.split_once(": ").unwrap());
    lines.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

#[test]
fn h4_a_refusal_says_the_same_in_lines_as_in_a_response() {
    // Seen to fail: with the reason left out of the lines.
    let wording = || {
        Wording::new("A \"B\"", "C\n", "Only {max}, \"{in_flight}\" and {waiting}: {retry_after} \u{e9}")
            .unwrap()
    };
    let own = Answer::envelope().over_max(wording()).over_rate(wording());
    for answer in [Answer::default(), Answer::envelope(), own, Answer::default().retry_after(Duration::ZERO)]
    {
        for reason in Reason::ALL {
            for request in [plain(), grpc()] {
                let refusal = refused_for(reason);
                let response = answer.refuse(&refusal, &request);
                let told = answer.tell(&refusal, !request.is_empty());
                let mut lines = Vec::new();
                told.write_lines(&mut lines);
                assert_eq!(
                    (&read(&lines), told.status()),
                    (response.headers(), response.status()),
                    "{reason}"
                );
                assert_eq!(told.body(), response.body());
            }
        }
    }
}

#[test]
fn h4_figures_say_the_same_in_lines_as_in_a_map() {
    // Seen to fail: with the reset left out of the lines.
    let slots = |limit, remaining| Figures::Concurrency { limit, remaining };
    let resets_in = Duration::from_millis(1_001);
    let window =
        Figures::Rate { limit: 5_000, remaining: 0, resets_in, window: Some(Duration::from_secs(60)) };
    let bucket = Figures::Rate { limit: 7, remaining: 6, resets_in: Duration::ZERO, window: None };
    for figures in [
        &[][..],
        &[slots(4, 0)],
        &[window],
        &[bucket],
        &[slots(100_000, 99_999), window],
        &[slots(1, 1), bucket],
    ] {
        let (mut lines, mut map) = (Vec::new(), HeaderMap::new());
        Figures::write_lines(figures, &mut lines);
        Figures::write_all(figures, &mut map);
        assert_eq!(read(&lines), map);
    }
}
