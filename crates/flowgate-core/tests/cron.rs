//! Cron expressions: the text form, and when something is next due.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use flowgate_core::Cron;
use proptest::prelude::*;

/// 2026-01-01 00:00:00 UTC, a Thursday.
const NEW_YEAR: i64 = 1_767_225_600;
const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

fn cron(text: &str) -> Cron {
    text.parse().unwrap()
}

fn next(text: &str, after: i64) -> i64 {
    cron(text).next_after(after).unwrap()
}

#[test]
fn the_next_moment_is_the_first_one_after() {
    // Seen to fail: with `after` itself allowed, the first line stands still; with the minute read as the second where
    // there are six fields; with `5/20` as 5 alone; with a Sunday of both names as none.
    for (text, after, expected) in [
        ("* * * * *", NEW_YEAR, NEW_YEAR + MINUTE),
        ("* * * * *", NEW_YEAR + 59, NEW_YEAR + MINUTE),
        ("* * * * * *", NEW_YEAR, NEW_YEAR + 1),
        ("30 5 * * * *", NEW_YEAR, NEW_YEAR + 5 * MINUTE + 30),
        ("*/15 * * * *", NEW_YEAR + 46 * MINUTE, NEW_YEAR + HOUR),
        ("5/20 * * * *", NEW_YEAR, NEW_YEAR + 5 * MINUTE),
        ("5/20 * * * *", NEW_YEAR + 5 * MINUTE, NEW_YEAR + 25 * MINUTE),
        ("30 4 * * *", NEW_YEAR + 5 * HOUR, NEW_YEAR + DAY + 4 * HOUR + 30 * MINUTE),
        ("0 9 * * MON-FRI", NEW_YEAR + DAY + 9 * HOUR, NEW_YEAR + 4 * DAY + 9 * HOUR),
        ("0 0 1 feb *", NEW_YEAR, NEW_YEAR + 31 * DAY),
        ("0 0 * * 7", NEW_YEAR, NEW_YEAR + 3 * DAY),
        ("0 0 * * 0,7", NEW_YEAR, NEW_YEAR + 3 * DAY),
        ("0 0 * * sun", NEW_YEAR, NEW_YEAR + 3 * DAY),
        ("10,40 0,12 * * *", NEW_YEAR + 40 * MINUTE, NEW_YEAR + 12 * HOUR + 10 * MINUTE),
        ("@hourly", NEW_YEAR, NEW_YEAR + HOUR),
        ("@daily", NEW_YEAR, NEW_YEAR + DAY),
        ("@weekly", NEW_YEAR, NEW_YEAR + 3 * DAY),
        ("@yearly", NEW_YEAR - 1, NEW_YEAR),
        // Leap days: 2028-02-29.
        ("0 0 29 2 *", NEW_YEAR, 1_835_395_200),
        // Before 1970.
        ("0 0 1 1 *", -DAY, 0),
    ] {
        assert_eq!(next(text, after), expected, "{text} after {after}");
    }
}

#[test]
fn where_both_days_are_restricted_either_is_enough() {
    // Seen to fail: with both wanted always.
    assert_eq!(next("0 0 13 * fri", NEW_YEAR), NEW_YEAR + DAY, "Friday, the 2nd");
    assert_eq!(next("0 0 13 * *", NEW_YEAR), NEW_YEAR + 12 * DAY);
    assert_eq!(next("0 0 */40 * fri", NEW_YEAR), NEW_YEAR + 120 * DAY, "the 1st of May is a Friday");
}

#[test]
fn every_month_of_ten_thousand_years_begins_on_its_day() {
    // Seen to fail: with the numbers of the calendar's arithmetic one more, and with its signs changed, one at a time.
    let (first_of_month, last_days) = (cron("0 0 1 * *"), cron("0 0 28-31 * *"));
    let mut begins = -62_167_219_200;
    for year in 0..10_000 {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for days in [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            let (last, next) = (begins + (days - 1) * DAY, begins + days * DAY);
            assert_eq!(first_of_month.next_after(begins), Some(next), "year {year}");
            assert_eq!(last_days.next_after(last - 1), Some(last), "year {year}");
            begins = next;
        }
    }
    assert_eq!(begins - 1, 253_402_300_799, "the last second of the year 9999");
}

#[test]
fn what_comes_once_in_forty_years_comes_and_what_never_does_is_none() {
    // Seen to fail: with 39 years to look ahead. A 29th of February on a Sunday: in 2088, and then in 2128.
    assert_eq!(next("0 0 29 2 */7", 3_728_851_200), 4_991_068_800);
    assert_eq!(cron("0 0 30 2 *").next_after(NEW_YEAR), None);
    assert_eq!(cron("* * * * *").next_after(i64::MAX), None);
    assert_eq!(cron("* * * * *").next_after(i64::MIN), None);
}

#[test]
fn a_mistake_names_the_field_and_what_is_accepted() {
    for (text, told) in [
        ("", r#"RC5003: option `cron` is ""; accepted: five fields"#),
        ("* * * *", r#"option `cron` is "* * * *"; accepted: five fields"#),
        ("60 * * * *", r#"(the minute is "60")"#),
        ("* 24 * * *", r#"(the hour is "24")"#),
        ("* * 0 * *", r#"(the day is "0")"#),
        ("* * * 13 *", r#"(the month is "13")"#),
        ("* * * * 8", r#"(the weekday is "8")"#),
        ("* * * jam *", r#"(the month is "jam")"#),
        ("5-1 * * * *", r#"(the minute is "5-1")"#),
        ("*/0 * * * *", r#"(the minute is "*/0")"#),
        ("+5 * * * *", r#"(the minute is "+5")"#),
        ("1,,2 * * * *", r#"(the minute is "1,,2")"#),
        ("@often", r#"option `cron` is "@often""#),
    ] {
        let error = text.parse::<Cron>().unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// A field that `matches` is asked for: which values, and as which text.
fn field(first: u32, last: u32) -> impl Strategy<Value = (String, Vec<u32>)> {
    let range = (first..=last).prop_flat_map(move |low| (Just(low), low..=last, 1..=7_u32));
    let part = prop_oneof![
        2 => Just(("*".to_owned(), (first..=last).collect::<Vec<_>>())),
        2 => (first..=last).prop_map(|value| (value.to_string(), vec![value])),
        1 => range.prop_map(|(low, high, step)| {
            (format!("{low}-{high}/{step}"), (low..=high).step_by(step as usize).collect())
        }),
        1 => (1..=30_u32).prop_map(move |step| {
            (format!("*/{step}"), (first..=last).step_by(step as usize).collect())
        }),
    ];
    prop::collection::vec(part, 1..3).prop_map(|parts| {
        let text = parts.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(",");
        (text, parts.into_iter().flat_map(|(_, values)| values).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compared with trying every minute, by a calendar that counts day by day.
    #[test]
    fn it_is_the_first_minute_that_matches(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 31), month in field(1, 12),
        weekday in field(0, 6), start in 0_i64..730 * DAY,
    ) {
        // Seen to fail: with Sunday as 1.
        let text = format!("{} {} {} {} {}", minute.0, hour.0, day.0, month.0, weekday.0);
        let either = !day.0.starts_with('*') && !weekday.0.starts_with('*');
        let after = NEW_YEAR + start;
        let horizon = 60;
        let expected = Calendar::from_new_year().filter(|today| (today.start + DAY) > after).take(horizon).find_map(|today| {
            let (by_month, by_week) = (day.1.contains(&today.day), weekday.1.contains(&today.weekday));
            let is_day = if either { by_month || by_week } else { by_month && by_week };
            if !(is_day && month.1.contains(&today.month)) {
                return None;
            }
            (0..24 * 60).map(|at| (at, today.start + i64::from(at) * MINUTE)).find(|&(at, moment)| {
                moment > after && hour.1.contains(&(at / 60)) && minute.1.contains(&(at % 60))
            }).map(|(_, moment)| moment)
        });
        let found = cron(&text).next_after(after);
        match expected {
            Some(_) => prop_assert_eq!(found, expected, "{}", text),
            None => prop_assert!(found.is_none_or(|found| found > after + (horizon as i64 - 2) * DAY), "{text}: {found:?}"),
        }
    }
}

/// Days one after the other from 2026-01-01 on.
struct Calendar {
    start: i64,
    year: u32,
    month: u32,
    day: u32,
    weekday: u32,
}

impl Calendar {
    fn from_new_year() -> impl Iterator<Item = Calendar> {
        let first = Calendar { start: NEW_YEAR, year: 2026, month: 1, day: 1, weekday: 4 };
        std::iter::successors(Some(first), |today| {
            let is_leap = today.year % 4 == 0;
            let days = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let (mut year, mut month, mut day) = (today.year, today.month, today.day + 1);
            if day > days[(month - 1) as usize] {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
            Some(Calendar { start: today.start + DAY, year, month, day, weekday: (today.weekday + 1) % 7 })
        })
    }
}
