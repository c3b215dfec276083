//! Cron expressions: when something is next due.
//!
//! Owns the text form and the arithmetic of the calendar. It reads no clock and knows no time zones: the
//! caller says what time it is, in UTC.

use std::{fmt, str::FromStr};

use crate::OptionError;

const ACCEPTED: &str = "five fields (minute hour day month weekday), six with seconds first, or one of @yearly, \
    @monthly, @weekly, @daily, @hourly; each field `*`, a number, a name, `a-b`, `*/n`, `a-b/n`, or several with commas";
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const DAY: i64 = 24 * 60 * 60;
/// The rarest day there is, a 29th of February on one weekday, comes again after 28 years, or 40 across a century.
const YEARS_AHEAD: i64 = 40;
/// The years that are reckoned with: 0000 to 9999.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

/// A schedule by calendar: a set of seconds, minutes, hours, days, months and weekdays.
///
/// A day matches if both the day of the month and the weekday do; where both are restricted, if either does, as in every
/// cron since the seventies.
///
/// ```
/// # use flowgate_core::Cron;
/// let weekdays_at_nine: Cron = "0 9 * * mon-fri".parse()?;
/// // From Friday, 2026-01-02 09:00:00 UTC, to Monday.
/// assert_eq!(weekdays_at_nine.next_after(1_767_344_400), Some(1_767_603_600));
/// # Ok::<(), flowgate_core::OptionError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the day of the month and the weekday are both restricted, so that either is enough.
    is_either_day: bool,
}

/// A field of the text: what it is called, its range, and the names for its numbers.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", first: 0, last: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", first: 0, last: 59, names: &[] };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, names: &[] };
const DAY_OF_MONTH: Field = Field { name: "day", first: 1, last: 31, names: &[] };
const MONTH: Field = Field { name: "month", first: 1, last: 12, names: &MONTHS };
/// Sunday is 0, and 7 as well.
const WEEKDAY: Field = Field { name: "weekday", first: 0, last: 7, names: &WEEKDAYS };

impl Cron {
    /// The first moment after `after` that matches, in seconds since 1970 and in UTC; `None` if there is none within forty
    /// years (the 30th of February).
    pub fn next_after(&self, after: i64) -> Option<i64> {
        let from = after.checked_add(1).filter(|from| (FIRST..=LAST).contains(from))?;
        let mut day = from.div_euclid(DAY);
        let mut second = from.rem_euclid(DAY);
        let last_day = day + YEARS_AHEAD * 366;
        while day <= last_day {
            if self.matches_day(day)
                && let Some(found) = self.second_of_day(second)
            {
                return Some(day * DAY + found);
            }
            day += 1;
            second = 0;
        }
        None
    }

    fn matches_day(&self, day: i64) -> bool {
        let (month, day_of_month) = civil(day);
        // 1970 began on a Thursday.
        let weekday = (day + 4).rem_euclid(7) as u32;
        self.has_date(month, day_of_month, weekday)
    }

    /// Whether a day of a month matches that is this weekday, 0 for Sunday: for calendars of others, who know time zones.
    pub fn has_date(&self, month: u32, day: u32, weekday: u32) -> bool {
        let by_month = has(self.days, day);
        let by_week = has(self.weekdays, weekday);
        has(self.months, month) && if self.is_either_day { by_month || by_week } else { by_month && by_week }
    }

    /// Whether a time of the day matches.
    pub fn has_time(&self, hour: u32, minute: u32, second: u32) -> bool {
        has(self.hours, hour) && has(self.minutes, minute) && has(self.seconds, second)
    }

    /// Whether every hour matches.
    pub fn has_every_hour(&self) -> bool {
        self.hours == (1 << 24) - 1
    }

    /// The first second of a day from `from` on that matches.
    fn second_of_day(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = ((from / 3600) as u32, (from / 60 % 60) as u32, (from % 60) as u32);
        for at_hour in (hour..24).filter(|&at| has(self.hours, at)) {
            let from_minute = if at_hour == hour { minute } else { 0 };
            for at_minute in (from_minute..60).filter(|&at| has(self.minutes, at)) {
                let is_first = at_hour == hour && at_minute == minute;
                let from_second = if is_first { second } else { 0 };
                if let Some(at) = (from_second..60).find(|&at| has(self.seconds, at)) {
                    return Some(i64::from(at_hour) * 3600 + i64::from(at_minute) * 60 + i64::from(at));
                }
            }
        }
        None
    }
}

impl FromStr for Cron {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let lower = text.trim().to_ascii_lowercase();
        let plain = match MACROS.iter().find(|(name, _)| *name == lower) {
            Some((_, plain)) => plain,
            None => lower.as_str(),
        };
        let fields: Vec<&str> = plain.split_ascii_whitespace().collect();
        let (second, rest) = match fields.len() {
            5 => ("0", &fields[..]),
            6 => (fields[0], &fields[1..]),
            _ => return Err(OptionError::new("cron", format_args!("{text:?}"), ACCEPTED)),
        };
        let read = |field: &Field, part: &str| {
            field.read(part).ok_or_else(|| {
                let given = format!("{text:?} (the {} is {part:?})", field.name);
                OptionError::new("cron", given, ACCEPTED)
            })
        };
        let weekdays = read(&WEEKDAY, rest[4])?;
        Ok(Cron {
            text: text.trim().to_owned(),
            seconds: read(&SECOND, second)?,
            minutes: read(&MINUTE, rest[0])?,
            hours: read(&HOUR, rest[1])?,
            days: read(&DAY_OF_MONTH, rest[2])?,
            months: read(&MONTH, rest[3])?,
            weekdays: weekdays | u64::from(has(weekdays, 7)),
            is_either_day: !is_open(rest[2]) && !is_open(rest[4]),
        })
    }
}

impl TryFrom<&str> for Cron {
    type Error = OptionError;

    fn try_from(text: &str) -> Result<Self, OptionError> {
        text.parse()
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Field {
    /// The numbers that the text allows, as bits.
    fn read(&self, text: &str) -> Option<u64> {
        text.split(',').try_fold(0, |all, part| Some(all | self.read_part(part)?))
    }

    fn read_part(&self, part: &str) -> Option<u64> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|&step| step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (self.first, self.last),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None => {
                let first = self.value(range)?;
                // `5/15` counts on from 5; a bare number is itself.
                (first, if step.is_some() { self.last } else { first })
            }
        };
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        (first <= last).then(|| (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| *name == text);
        let value = match named {
            Some(index) => self.first + u32::try_from(index).ok()?,
            None => number(text)?,
        };
        (self.first..=self.last).contains(&value).then_some(value)
    }
}

/// Digits and nothing else: no sign, no blanks.
fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// Whether a field of days restricts nothing, or counts through from the start.
fn is_open(field: &str) -> bool {
    field.starts_with(['*', '?'])
}

fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// The month and the day of the month of a day, counted from 1970-01-01 (the calendar as if it always had been this one).
fn civil(day: i64) -> (u32, u32) {
    // Years that begin in March have their leap day at the end; 400 of them are always 146,097 days.
    let of_era = (day + 719_468).rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (month as u32, day_of_month as u32)
}
