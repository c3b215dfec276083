//! Periods: every form they are given in, and that what is written can be read.

use std::time::Duration;

use flowgate_core::{Limits, Period};
use proptest::prelude::*;

const MOST: u64 = 366 * 24 * 60 * 60 * 1000;

fn period(text: &str) -> Period {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn text_is_a_sum_of_units_from_the_largest_down() {
    // Seen to fail: with `h` worth 60 seconds; without `trim`.
    for (text, millis, written) in [
        ("1ms", 1, "1ms"),
        ("250ms", 250, "250ms"),
        ("1000ms", 1_000, "1s"),
        ("10s", 10_000, "10s"),
        ("90s", 90_000, "1m30s"),
        ("1m", 60_000, "1m"),
        ("1h", 3_600_000, "1h"),
        ("1h30m", 5_400_000, "1h30m"),
        ("2d", 172_800_000, "2d"),
        ("24h", 86_400_000, "1d"),
        ("1d2h3m4s5ms", 93_784_005, "1d2h3m4s5ms"),
        ("1h5ms", 3_600_005, "1h5ms"),
        ("0h10s", 10_000, "10s"),
        ("007s", 7_000, "7s"),
        (" 10s\n", 10_000, "10s"),
        ("366d", MOST, "366d"),
    ] {
        assert_eq!(period(text).as_millis(), millis, "{text}");
        assert_eq!(period(text).to_string(), written);
    }
}

#[test]
fn text_milliseconds_durations_and_periods_are_the_same_option() {
    // Seen to fail: with a bare number taken for seconds.
    let built = [
        Limits::builder().rate(7, "1m"),
        Limits::builder().rate(7, 60_000_u64),
        Limits::builder().rate(7, Duration::from_secs(60)),
        Limits::builder().rate(7, period("60s")),
    ]
    .map(|builder| builder.build().expect("valid"));
    assert!(built.iter().all(|limits| *limits == built[0]), "{built:?}");
    assert_eq!(built[0].to_string(), "rate 7 per 1m, queue unbounded");
}

#[test]
fn periods_are_in_order_of_length() {
    // Seen to fail: with `Ord` reversed.
    assert!(period("59s") < period("1m") && period("999ms") < period("1s") && period("1d") < period("25h"));
}

/// None, one or a few of each unit: where a carry would go wrong.
fn round() -> impl Strategy<Value = u64> {
    let few = || 0..3_u64;
    let sum = |(d, h, m, s, ms)| (((d * 24 + h) * 60 + m) * 60 + s) * 1000 + ms;
    (few(), few(), few(), few(), 1..3_u64).prop_map(sum)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(millis in prop_oneof![1..=MOST, 1..=100_000_u64, round()]) {
        // Seen to fail: with `>` for `>=` in `Display`: one of the last unit is lost.
        let period = Period::from_millis(millis).expect("in range");
        prop_assert_eq!(period.to_string().parse::<Period>(), Ok(period));
        prop_assert_eq!(Period::try_from(period.as_duration()), Ok(period));
        prop_assert_eq!(Period::try_from(period.as_millis()), Ok(period));
        prop_assert_eq!(u128::from(period.as_nanos()), period.as_duration().as_nanos());
    }

    #[test]
    fn any_text_is_read_or_refused_and_what_is_read_is_in_range(
        text in "[0-9dhms .-]{0,12}|[0-9]{1,21}(d|h|m|s|ms)|\\PC{0,8}",
    ) {
        // Seen to fail: with a plain `*` for `checked_mul`; without the range.
        if let Ok(period) = text.parse::<Period>() {
            prop_assert!((1..=MOST).contains(&period.as_millis()));
        }
    }
}
