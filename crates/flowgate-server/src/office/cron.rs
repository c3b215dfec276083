//! When a schedule is due: five fields, with an optional `CRON_TZ=Zone` before them.
//!
//! Owns the zone and the calendar's corners; the fields are the core's. A time that a change of clocks leaves out is
//! due right after the gap, one that comes twice is due the first time, and both times where every hour is meant: every
//! quarter of an hour is then due every quarter of an hour; where both days of month and of week are limited, either
//! will do, as cron has it.

use flowgate_core::Cron as Fields;
use jiff::{
    Span, Timestamp, civil,
    tz::{AmbiguousOffset, TimeZone},
};

use crate::message::Fault;

const FIELD: &str = "Upstash-Cron";
const ACCEPTED: &str = "five fields (minute hour day month weekday) like 0 9 * * 1-5, with CRON_TZ=Europe/Berlin before \
                        them if it is not UTC";
/// What is not due within so many days never is: the 30th of February. Its 29th may be a certain weekday once in forty years.
const HORIZON: u32 = 40 * 366;
/// By so many hours are clocks set at once (in Antarctica; by one elsewhere): so far apart are the time of the day and the
/// order in which moments come.
const LARGEST_CHANGE: i8 = 2;

/// A checked cron expression.
#[derive(Clone, Debug)]
pub(crate) struct Cron {
    zone: TimeZone,
    fields: Fields,
}

impl Cron {
    /// The expression that this text is.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        let wrong = || Fault::new(FIELD, text, ACCEPTED);
        let mut rest = text.trim();
        let mut zone = TimeZone::UTC;
        for prefix in ["CRON_TZ=", "TZ="] {
            if let Some(behind) = rest.strip_prefix(prefix) {
                let (name, fields) = behind.split_once(char::is_whitespace).ok_or_else(wrong)?;
                zone = TimeZone::get(name)
                    .map_err(|_| Fault::new(FIELD, name, "a time zone like Europe/Berlin"))?;
                rest = fields.trim();
            }
        }
        // The protocol knows no seconds.
        if rest.split_whitespace().count() > 5 {
            return Err(wrong());
        }
        let cron = Cron { zone, fields: rest.parse().map_err(|_| wrong())? };
        cron.next(0).ok_or_else(|| Fault::new(FIELD, text, "a time that occurs"))?;
        Ok(cron)
    }

    /// When it is next due after this moment; both in milliseconds since the Unix epoch.
    pub(crate) fn next(&self, after: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after).ok()?).ok()?;
        let local = after.to_zoned(self.zone.clone()).datetime();
        let start = local.checked_sub(Span::new().hours(LARGEST_CHANGE)).ok()?;
        let mut date = start.date();
        let (mut first, mut more): (Option<Timestamp>, _) = (None, LARGEST_CHANGE);
        for _ in 0..HORIZON {
            let is_due = self.has_date(date);
            let from = if date == start.date() { start.hour() } else { 0 };
            for hour in from..24 {
                if first.is_some() {
                    more -= 1;
                }
                if is_due {
                    first = first.into_iter().chain(self.within(date, hour, after)?).min();
                }
                if more == 0 {
                    return u64::try_from(first?.as_millisecond()).ok();
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first moment of an hour of a day that comes after this one. The outer `None`: beyond the calendar.
    fn within(&self, date: civil::Date, hour: i8, after: Timestamp) -> Option<Option<Timestamp>> {
        let mut first: Option<Timestamp> = None;
        for minute in 0..60 {
            if !self.fields.has_time(number(hour), number(minute), 0) {
                continue;
            }
            let moment = self.zone.to_ambiguous_timestamp(date.at(hour, minute, 0, 0));
            let comes_twice = matches!(moment.offset(), AmbiguousOffset::Fold { .. });
            let again = (comes_twice && self.fields.has_every_hour()).then(|| moment.later());
            for at in [Some(moment.compatible()), again].into_iter().flatten() {
                let at = at.ok()?;
                if at > after && first.is_none_or(|first| at < first) {
                    first = Some(at);
                }
            }
        }
        Some(first)
    }

    fn has_date(&self, date: civil::Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        self.fields.has_date(number(date.month()), number(date.day()), number(weekday))
    }
}

fn number(number: i8) -> u32 {
    u32::from(number.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(cron: &str, after: &str) -> String {
        let after: Timestamp = after.parse().expect("a moment");
        let next =
            Cron::read(cron).unwrap_or_else(|fault| panic!("{fault}")).next(after.as_millisecond() as u64);
        Timestamp::from_millisecond(next.expect("it comes") as i64).expect("a moment").to_string()
    }

    #[test]
    fn a_schedule_is_due_when_its_fields_say_so() {
        let table = [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:14:59Z", "2026-01-01T00:15:00Z"),
            ("0 9 * * 1-5", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("30 4 1,15 * *", "2026-01-01T04:30:00Z", "2026-01-15T04:30:00Z"),
            ("0 9 ? * 1", "2026-01-01T00:00:00Z", "2026-01-05T09:00:00Z"),
            ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@hourly", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"),
            ("CRON_TZ=America/New_York 0 4 * * *", "2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z"),
            ("CRON_TZ=America/New_York 0 4 * * *", "2026-07-01T00:00:00Z", "2026-07-01T08:00:00Z"),
            // 02:30 does not exist on that day in Berlin: it is due right after the gap.
            ("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00Z"),
            // 02:30 comes twice: it is due the first time, and then on the next day.
            ("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"),
            ("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
            // An interval goes on through the hour that comes twice, and through the one that is left out.
            ("CRON_TZ=Europe/Berlin */20 * * * *", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z"),
            ("CRON_TZ=Europe/Berlin */20 * * * *", "2026-10-25T00:40:00Z", "2026-10-25T01:00:00Z"),
            ("CRON_TZ=Europe/Berlin */20 * * * *", "2026-10-25T01:00:00Z", "2026-10-25T01:20:00Z"),
            ("CRON_TZ=Europe/Berlin 0 * * * *", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"),
            ("CRON_TZ=Europe/Berlin 0 * * * *", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
            ("CRON_TZ=Europe/Berlin */20 * * * *", "2026-03-29T00:40:00Z", "2026-03-29T01:00:00Z"),
            ("CRON_TZ=Europe/Berlin */20 * * * *", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z"),
            // Seen to fail: with hours looked at in the order of the day alone, 03:20 was left out there, and 02:40; and
            // with a look back over the hour before, not over midnight, 23:30.
            ("CRON_TZ=Antarctica/Troll */20 * * * *", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z"),
            ("CRON_TZ=Antarctica/Troll */20 * * * *", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z"),
            ("CRON_TZ=Antarctica/Troll */20 * * * *", "2026-10-25T00:40:00Z", "2026-10-25T01:00:00Z"),
            ("CRON_TZ=Antarctica/Troll 30 1 * * *", "2026-03-29T01:10:00Z", "2026-03-29T01:30:00Z"),
            ("CRON_TZ=America/Nuuk 0,30 23 * * *", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"),
            ("CRON_TZ=America/Nuuk 0,30 23 * * sat", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"),
            // Seen to fail: with eight years to look ahead, it was never due again after 2032.
            ("0 0 29 2 */7", "2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"),
            ("CRON_TZ=Australia/Lord_Howe */20 * * * *", "2026-04-04T14:40:00Z", "2026-04-04T15:10:00Z"),
        ];
        for (cron, after, expected) in table {
            assert_eq!(next(cron, after), expected, "{cron}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_named_with_what_is() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "0 0 30 2 *",
            "CRON_TZ=Nowhere/City * * * * *",
            "hello",
        ] {
            let fault = Cron::read(text).expect_err(text).to_string();
            assert!(fault.starts_with("Upstash-Cron is"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_schedule_or_a_fault(text in "[0-9*/,a-z -]{0,24}") {
            let _ = Cron::read(&text);
        }
    }
}
