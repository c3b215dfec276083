//! Spans of time as senders write them: `10s`, `1d10h30m`, `1.5s`, `250ms`; a bare number is seconds.

use std::time::Duration;

use super::Fault;

/// No span is longer.
const MOST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
const ACCEPTED: &str =
    "a span of time like 10s, 5m, 1d10h30m or 250ms, up to 366d (a bare number is seconds)";
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];

/// The span that this text means.
pub(crate) fn span(field: &str, text: &str) -> Result<Duration, Fault> {
    let text = text.trim();
    parse(text).filter(|span| *span <= MOST).ok_or_else(|| Fault::new(field, text, ACCEPTED))
}

/// A bare number of seconds, or such a span; `None` for anything else.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    parse(text.trim())
}

fn parse(text: &str) -> Option<Duration> {
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return scaled(text, 1_000_000_000);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let &(_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(scaled(number, nanos)?)?;
        rest = behind;
    }
    Some(total)
}

/// A decimal number of so many nanoseconds each, exactly.
fn scaled(number: &str, nanos: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.is_empty() || number == "." || fraction.contains('.') || fraction.len() > 18 {
        return None;
    }
    let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok() };
    let whole = u128::from(read(whole)?) * u128::from(nanos);
    let part = u128::from(read(fraction)?) * u128::from(nanos) / 10_u128.pow(fraction.len() as u32);
    let total = whole + part;
    let second = 1_000_000_000;
    Some(Duration::new(u64::try_from(total / second).ok()?, (total % second) as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_are_read_as_senders_write_them() {
        let table = [
            ("10s", 10_000),
            ("30", 30_000),
            ("0", 0),
            ("0s", 0),
            ("1.5s", 1_500),
            (".5s", 500),
            ("250ms", 250),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1d10h30m", 124_200_000),
            ("60000s", 60_000_000),
            (" 7d ", 604_800_000),
            ("366d", 31_622_400_000),
        ];
        for (text, millis) in table {
            assert_eq!(span("delay", text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_named_with_what_is() {
        for text in
            ["", "-1s", "s", "10x", "1 s", "1..5s", "ten", "1s m", "367d", "99999999999999999999", "1e3", "."]
        {
            let fault = span("Upstash-Delay", text).expect_err(text).to_string();
            assert!(fault.starts_with("Upstash-Delay is ") && fault.contains("like 10s"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_span_or_a_fault(text in "\\PC{0,24}") {
            let _ = span("delay", &text);
        }

        #[test]
        fn any_text_of_its_letters_is_a_span_or_a_fault(text in "[0-9.smhdnuµ -]{0,40}") {
            if let Ok(found) = span("delay", &text) {
                prop_assert!(found <= MOST);
            }
        }

        #[test]
        fn whole_seconds_come_back(number in 0_u64..31_622_400) {
            prop_assert_eq!(span("delay", &format!("{number}s")), Ok(Duration::from_secs(number)));
            prop_assert_eq!(span("delay", &number.to_string()), Ok(Duration::from_secs(number)));
        }
    }
}
