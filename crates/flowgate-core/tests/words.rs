//! The words a user meets, as snapshots: reasons, codes, refusals, limits and events.

use std::{sync::Arc, time::Duration};

use flowgate_core::{
    Adaptive, Code, Event, Hold, Ident, Key, Limits, OptionError, Reason, Refusal, Spot, Tick, What,
};

fn ident(label: Option<&str>) -> Arc<Ident> {
    Arc::new(Ident { gate: "payments".into(), label: label.map(Into::into), scope: None })
}

#[test]
fn reasons_have_a_word_a_code_and_say_whether_to_try_again() {
    // Seen to fail: with two reasons swapped in ALL; with Rate under RC5026; with TooHeavy retryable.
    let seen: Vec<_> =
        Reason::ALL.iter().map(|r| (r.to_string(), r.code().as_str(), r.is_retryable())).collect();
    let expected = [
        ("busy", "RC5026", true),
        ("queue-full", "RC5026", true),
        ("queue-timeout", "RC5026", true),
        ("rate", "RC5013", true),
        ("paused", "RC5026", true),
        ("closed", "RC5026", false),
        ("keys-full", "RC5026", true),
        ("re-entrant", "RC5026", false),
        ("too-heavy", "RC5026", false),
        ("unreachable", "RC5026", true),
    ];
    assert_eq!(seen, expected.map(|(word, code, retryable)| (word.to_owned(), code, retryable)));
    assert!(Reason::ALL.iter().enumerate().all(|(place, reason)| reason.index() == place));
}

#[test]
fn holds_give_the_reason_of_one_who_will_not_wait() {
    // Seen to fail: with Line told as Paused.
    let holds = [Hold::Paused, Hold::Line, Hold::Slots, Hold::Rate { until: Tick::NEVER }];
    assert_eq!(holds.map(Hold::reason), [Reason::Paused, Reason::Busy, Reason::Busy, Reason::Rate]);
}

#[test]
fn codes_are_written_as_they_are_documented() {
    // Seen to fail: with two codes swapped.
    let codes = [Code::Misconfigured, Code::RateRefused, Code::Refused].map(|code| code.to_string());
    assert_eq!(codes, ["RC5003", "RC5013", "RC5026"]);
    let error = OptionError::new("max_keys", 0, "an integer from 1 to 1000000");
    assert_eq!(error.to_string(), "RC5003: option `max_keys` is 0; accepted: an integer from 1 to 1000000");
}

#[test]
fn refusals_say_where_why_how_full_and_when_to_try_again() {
    // Seen to fail: with `max` left out; with the key written bare.
    let mut busy = Refusal::new(ident(None), None, Reason::Busy);
    (busy.in_use, busy.max) = (5, Some(5));
    assert_eq!(busy.to_string(), "RC5026: gate `payments` refused: busy (5 in use of 5, 0 waiting)");
    assert!(busy.is_retryable() && busy.code() == Code::Refused);

    let mut rate = Refusal::new(ident(Some("eu")), Some(Key::new("tenant \"42\"")), Reason::Rate);
    (rate.waiting, rate.retry_after) = (3, Some(Duration::from_millis(1_500)));
    assert_eq!(
        rate.to_string(),
        r#"RC5013: gate `payments` [eu] key "tenant \"42\"" refused: rate (0 in use, 3 waiting); retry after 1.5s"#
    );
}

#[test]
fn g12_a_re_entrant_refusal_names_both_places() {
    // Seen to fail: with the place that asked told twice.
    let mut refusal = Refusal::new(ident(None), Some(Key::new("")), Reason::Reentrant);
    (refusal.in_use, refusal.max) = (1, Some(1));
    let (held, at) = (Spot::here(), line!());
    let asked = Spot::here();
    refusal.places = Some((held, asked));
    let (text, file, again) = (refusal.to_string(), file!(), at + 1);
    assert_eq!(
        text,
        format!(
            r#"RC5026: gate `payments` key "" refused: re-entrant (1 in use of 1, 0 waiting); held at {file}:{at}, asked for again at {file}:{again}"#
        )
    );
    assert!(!refusal.is_retryable());
}

#[test]
fn limits_are_written_as_one_line() {
    // Seen to fail: with the queue left out; with the burst left out; with the discipline left out; with `smooth` a
    // window; with a smooth burst of what refills in another time, or of nothing.
    let rule = Adaptive::aimd().floor_at(4).slower_than(Duration::from_millis(250));
    for (builder, text) in [
        (Limits::builder().max(5), "max 5, queue unbounded"),
        (Limits::builder().max(5).reject(), "max 5, reject"),
        (
            Limits::builder().max(5).rate(20, "60s").queue(50).timeout(Duration::from_secs(30)),
            "max 5, rate 20 per 1m, queue 50, timeout 30s",
        ),
        (
            Limits::builder().max(5).queue(50).codel(Duration::from_millis(5), Duration::from_millis(100)),
            "max 5, queue 50, codel target 5ms interval 100ms",
        ),
        (Limits::builder().rate(20, "1s").smooth().reject(), "rate 20 per 1s (bucket, burst 1), reject"),
        (
            Limits::builder().rate(30_000, "1m").smooth().reject(),
            "rate 30000 per 1m (bucket, burst 5), reject",
        ),
        (
            Limits::builder().rate(500, "1s").smooth().burst(7).reject(),
            "rate 500 per 1s (bucket, burst 7), reject",
        ),
        (Limits::builder().rate(20, "1s").burst(5).reject(), "rate 20 per 1s (bucket, burst 5), reject"),
        (
            Limits::builder().max(64).adaptive(rule).reject(),
            "max 64 (adaptive aimd from 4, slower than 250ms), reject",
        ),
        (
            Limits::builder().max(64).adaptive(Adaptive::aimd()).reject(),
            "max 64 (adaptive aimd from 1), reject",
        ),
        (
            Limits::builder().max(64).adaptive(Adaptive::gradient()).reject(),
            "max 64 (adaptive gradient from 1, tolerance 150 %), reject",
        ),
    ] {
        assert_eq!(builder.build().expect("valid").to_string(), text);
    }
}

#[test]
fn g11_events_have_the_words_of_the_law() {
    // Seen to fail: with `left` told as `rejected`.
    let whats = [
        What::Queued { depth: 1 },
        What::Acquired { waited: Duration::ZERO, in_use: 1 },
        What::Released { held: None },
        What::Rejected { reason: Reason::Busy },
        What::Left,
    ];
    assert_eq!(whats.map(|what| what.as_str()), ["queued", "acquired", "released", "rejected", "left"]);
    let (ident, key) = (ident(Some("eu")), Key::new("a"));
    let event = Event { ident: &ident, key: Some(&key), what: whats[0] };
    assert_eq!((event.ident.to_string(), event.key), ("`payments` [eu]".to_owned(), Some(&key)));
}

#[test]
fn moments_are_added_and_subtracted_without_overflow() {
    // Seen to fail: with a plain `+` in `after`; with a plain `-` in `since`.
    let tick = Tick::from_nanos(5);
    assert_eq!(tick.after(Duration::from_nanos(7)).since(tick), Duration::from_nanos(7));
    assert_eq!(tick.since(Tick::from_nanos(9)), Duration::ZERO);
    assert_eq!(Tick::from_nanos(u64::MAX - 1).after(Duration::from_secs(1)), Tick::NEVER);
    assert_eq!(tick.after(Duration::MAX), Tick::NEVER);
}
