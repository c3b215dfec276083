//! When a schedule is due: five fields, with an optional `CRON_TZ=Zone` before them.
//!
//! Owns the text and the calendar's corners: a time that a change of clocks leaves out is due right after the gap, one that
//! comes twice is due the first time, and both times where every hour is meant: every quarter of an hour is then due every
//! quarter of an hour; where both days of month and of week are limited, either will do, as cron has it.

use jiff::{
    Timestamp, civil,
    tz::{AmbiguousOffset, TimeZone},
};

use crate::message::Fault;

const FIELD: &str = "Upstash-Cron";
const ACCEPTED: &str = "five fields (minute hour day month weekday) like 0 9 * * 1-5, with CRON_TZ=Europe/Berlin before \
                        them if it is not UTC";
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// All the bits of hours.
const EVERY_HOUR: u64 = (1 << 24) - 1;
/// What is not due within so many days never is: the 30th of February.
const HORIZON: u32 = 8 * 366;

/// A checked cron expression.
#[derive(Clone, Debug)]
pub(crate) struct Cron {
    zone: TimeZone,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether either of day and weekday will do.
    is_either: bool,
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
        let rest = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else { return Err(wrong()) };
        let weekdays = bits(weekday, 0, 7, &DAYS).ok_or_else(wrong)?;
        let cron = Cron {
            zone,
            minutes: bits(minute, 0, 59, &[]).ok_or_else(wrong)?,
            hours: bits(hour, 0, 23, &[]).ok_or_else(wrong)?,
            days: bits(day, 1, 31, &[]).ok_or_else(wrong)?,
            months: bits(month, 1, 12, &MONTHS).ok_or_else(wrong)?,
            // Sunday is 0 and 7.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            is_either: !day.starts_with('*') && !weekday.starts_with('*'),
        };
        cron.next(0).ok_or_else(|| Fault::new(FIELD, text, "a time that comes one day"))?;
        Ok(cron)
    }

    /// When it is next due after this moment; both in milliseconds since the Unix epoch.
    pub(crate) fn next(&self, after: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after).ok()?).ok()?;
        let start = after.to_zoned(self.zone.clone()).datetime();
        let mut date = start.date();
        for _ in 0..HORIZON {
            if self.has_date(date) {
                for hour in (0..24).filter(|hour| self.hours & (1 << hour) != 0) {
                    // An hour that is over on this day; one more is looked at, for clocks that are set back.
                    if date == start.date() && hour + 1 < start.hour() {
                        continue;
                    }
                    if let Some(at) = self.within(date, hour, after)? {
                        return u64::try_from(at.as_millisecond()).ok();
                    }
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first moment of an hour of a day that comes after this one. The outer `None`: beyond the calendar.
    fn within(&self, date: civil::Date, hour: i8, after: Timestamp) -> Option<Option<Timestamp>> {
        let mut first: Option<Timestamp> = None;
        for minute in (0..60).filter(|minute| self.minutes & (1 << minute) != 0) {
            let moment = self.zone.to_ambiguous_timestamp(date.at(hour, minute, 0, 0));
            let comes_twice = matches!(moment.offset(), AmbiguousOffset::Fold { .. });
            let again = (comes_twice && self.hours == EVERY_HOUR).then(|| moment.later());
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
        let has_day = self.days & (1 << date.day()) != 0;
        let has_weekday = self.weekdays & (1 << date.weekday().to_sunday_zero_offset()) != 0;
        let has_either = if self.is_either { has_day || has_weekday } else { has_day && has_weekday };
        self.months & (1 << date.month()) != 0 && has_either
    }
}

/// The numbers of a field, as bits.
fn bits(field: &str, least: u32, most: u32, names: &[&str]) -> Option<u64> {
    let mut bits = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (least, most.min(if most == 7 { 6 } else { most })),
            Some((first, last)) => (number(first, least, names)?, number(last, least, names)?),
            None => {
                let first = number(range, least, names)?;
                (first, if step.is_some() { most } else { first })
            }
        };
        if first < least || last > most || first > last {
            return None;
        }
        bits |= (first..=last).step_by(step.unwrap_or(1) as usize).fold(0, |bits, number| bits | 1 << number);
    }
    Some(bits)
}

fn number(text: &str, least: u32, names: &[&str]) -> Option<u32> {
    let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
    named.map(|index| index as u32 + least).or_else(|| text.parse().ok())
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
