//! What a response's headers tell of its server's limits.
//!
//! Owns reading them. A header that is missing or not understood is left out; it never fails a response.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::http::identity::split_from_the_right;

const CONCURRENCY_LIMIT: HeaderName = HeaderName::from_static("concurrency-limit");
const CONCURRENCY_REMAINING: HeaderName = HeaderName::from_static("concurrency-remaining");
const RATE_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATE_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const RATE: HeaderName = HeaderName::from_static("ratelimit");

/// How many may be in flight at the server, and how many more could start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Concurrency {
    pub(super) limit: u32,
    pub(super) remaining: u32,
}

/// `Concurrency-Limit` and `Concurrency-Remaining`; without the second, nothing is known to be taken.
pub(super) fn concurrency(headers: &HeaderMap) -> Option<Concurrency> {
    let count = |name| number(headers, name).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let limit = count(CONCURRENCY_LIMIT)?;
    let remaining = count(CONCURRENCY_REMAINING).unwrap_or(limit).min(limit);
    Some(Concurrency { limit, remaining })
}

/// In how long the rate allows something again, if it is spent; of several rates, until all of them do. The drafts of the IETF
/// have had three forms: a header for each number, `remaining=0, reset=44` in one, and an item for each rate, `"name";r=0;t=44`.
/// An item without a time is of something else, such as slots.
pub(super) fn spent_rate(headers: &HeaderMap) -> Option<Duration> {
    let spent =
        |remaining: Option<u64>, reset: Option<u64>| (remaining? == 0).then_some(Duration::from_secs(reset?));
    let lines = headers.get_all(RATE).iter().map(HeaderValue::as_bytes);
    let items: Vec<_> = lines.flat_map(|line| split_from_the_right(line, b',')).collect();
    let in_one = |name| items.iter().find_map(|item| member(item, name));
    let of_item = |item: &[u8], name| split_from_the_right(item, b';').find_map(|part| member(part, name));
    let of_items = items.iter().filter_map(|item| spent(of_item(item, "r"), of_item(item, "t")));
    let by_number = spent(number(headers, RATE_REMAINING), number(headers, RATE_RESET));
    of_items.max().max(spent(in_one("remaining"), in_one("reset"))).max(by_number)
}

/// The number of `name=number`.
fn member(text: &[u8], name: &str) -> Option<u64> {
    let (said, value) = str::from_utf8(text).ok()?.split_once('=')?;
    (said.trim() == name).then(|| digits(value.trim())).flatten()
}

/// `Retry-After`, as seconds or as a date. A date is compared with the response's own `Date`, so that it does not matter how
/// far the two clocks are apart; only without one is `wall` asked. Zero for a date that has passed.
pub(super) fn retry_after(headers: &HeaderMap, wall: impl FnOnce() -> SystemTime) -> Option<Duration> {
    if let Some(seconds) = number(headers, header::RETRY_AFTER) {
        return Some(Duration::from_secs(seconds));
    }
    let date = |name| httpdate::parse_http_date(text(headers, name)?).ok();
    let at = date(header::RETRY_AFTER)?;
    let now = date(header::DATE).unwrap_or_else(wall);
    Some(at.duration_since(now).unwrap_or_default())
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    digits(text(headers, name)?)
}

/// Digits and nothing else; more than can be counted is as much as can be counted.
fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_servers_clock() {
        // Seen to fail: with the date compared with the wall's clock alone, a minute is half a minute.
        const DATE: (&str, &str) = ("date", "Fri, 15 May 2015 15:34:21 GMT");
        let read = |lines: &[_]| {
            // Half a minute after `DATE`, by the wall.
            let wall = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_431_704_091);
            retry_after(&headers(lines), wall).map(|after| after.as_secs())
        };
        for (value, seconds) in [
            ("0", Some(0)),
            ("7", Some(7)),
            (" 120 ", Some(120)),
            ("99999999999999999999", Some(u64::MAX)),
            ("Fri, 15 May 2015 15:35:21 GMT", Some(60)),
            ("Friday, 15-May-15 15:35:21 GMT", Some(60)),
            ("Fri May 15 15:35:21 2015", Some(60)),
            ("Fri, 15 May 2015 15:34:20 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("+1", None),
            ("soon", None),
        ] {
            assert_eq!(read(&[DATE, ("retry-after", value)]), seconds, "{value:?}");
        }
        assert_eq!(read(&[DATE]), None);
        let date = ("retry-after", "Fri, 15 May 2015 15:35:21 GMT");
        assert_eq!(read(&[date]), Some(30), "without a `Date` the wall is asked");
        assert_eq!(read(&[("date", "nonsense"), date]), Some(30));
    }

    #[test]
    fn a_spent_rate_needs_both_its_headers() {
        // Seen to fail: with a missing reset read as 0.
        for (remaining, reset, seconds) in [
            ("0", "44", Some(44)),
            ("0", "0", Some(0)),
            ("1", "44", None),
            ("834", "44", None),
            ("0", "", None),
            ("", "44", None),
            ("none", "44", None),
        ] {
            let headers = headers(&[("ratelimit-remaining", remaining), ("ratelimit-reset", reset)]);
            assert_eq!(spent_rate(&headers), seconds.map(Duration::from_secs), "{remaining:?} {reset:?}");
        }
        assert_eq!(spent_rate(&headers(&[("ratelimit-remaining", "0")])), None);
    }

    #[test]
    fn a_spent_rate_is_told_in_any_form_of_the_drafts() {
        // Seen to fail: with a header for each number alone; with a comma in a name taken for the end of its item.
        for (lines, seconds) in [
            (&["\"default\";r=0;t=44"][..], Some(44)),
            (&["default;r=0;t=44"], Some(44)),
            (&["\"a, r=0;t=7\";r=1;t=44"], None),
            (&["\"minute\";r=0;t=30, \"day\";r=9;t=4000"], Some(30)),
            (&["\"minute\";r=0;t=30", "\"day\" ; r=0 ; t=4000"], Some(4000)),
            (&["\"concurrency\";r=0, \"rate\";r=0;t=5"], Some(5)),
            (&["\"concurrency\";r=0"], None),
            (&["limit=100, remaining=0, reset=50"], Some(50)),
            (&["limit=100, remaining=1, reset=50"], None),
            (&["limit=100, remaining=0"], None),
            (&["\"a\";r=0;t=99999999999999999999"], Some(u64::MAX)),
            (&["\"a\";r=0;t=-1"], None),
            (&["\"a\";r=0;t=1.5"], None),
            (&["\"a\";r=;t=1", ";;,,=", "r=0", "t=1", ""], None),
        ] {
            let headers = headers(&lines.iter().map(|line| ("ratelimit", *line)).collect::<Vec<_>>());
            assert_eq!(spent_rate(&headers), seconds.map(Duration::from_secs), "{lines:?}");
        }
        let both = headers(&[
            ("ratelimit-remaining", "3"),
            ("ratelimit-reset", "9"),
            ("ratelimit", "\"day\";r=0;t=60"),
        ]);
        assert_eq!(spent_rate(&both), Some(Duration::from_secs(60)), "of two rates one is spent");
    }

    #[test]
    fn concurrency_needs_a_limit_and_never_has_more_left_than_that() {
        // Seen to fail: without the bound, 31 of 30 are left.
        for (lines, expected) in [
            (&[("concurrency-limit", "30"), ("concurrency-remaining", "12")][..], Some((30, 12))),
            (&[("concurrency-limit", "30"), ("concurrency-remaining", "31")], Some((30, 30))),
            (&[("concurrency-limit", "30")], Some((30, 30))),
            (&[("concurrency-limit", "30"), ("concurrency-remaining", "x")], Some((30, 30))),
            (&[("concurrency-limit", "99999999999")], Some((u32::MAX, u32::MAX))),
            (&[("concurrency-remaining", "12")], None),
            (&[("concurrency-limit", "-1"), ("concurrency-remaining", "12")], None),
            (&[], None),
        ] {
            let seen = concurrency(&headers(lines)).map(|seen| (seen.limit, seen.remaining));
            assert_eq!(seen, expected, "{lines:?}");
        }
    }
}
