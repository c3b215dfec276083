//! Periods: the time over which a rate counts.
//!
//! Owns the text form (`10s`, `1m`, `1h30m`, `250ms`, `2d`) and the range. It never guesses a unit: a bare number in
//! text is an error, and a bare number in code is milliseconds.

use std::{fmt, str::FromStr, time::Duration};

use crate::OptionError;

const ACCEPTED: &str = "a period from 1ms to 366d: text like 250ms, 10s, 1m or 1h30m (units d, h, m, s, ms), whole \
    milliseconds, or a Duration";
const MAX_MILLIS: u64 = 366 * 24 * 60 * 60 * 1000;
const UNITS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60 * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

/// A length of time in whole milliseconds, from 1 ms to 366 days.
///
/// ```
/// # use flowgate_core::Period;
/// let period: Period = "1h30m".parse()?;
/// assert_eq!(period.as_millis(), 90 * 60 * 1000);
/// assert_eq!(period.to_string(), "1h30m");
/// assert!("10".parse::<Period>().is_err(), "a bare number has no unit");
/// # Ok::<(), flowgate_core::OptionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(u64);

impl Period {
    /// Creates a period of `millis` milliseconds.
    pub fn from_millis(millis: u64) -> Result<Self, OptionError> {
        if (1..=MAX_MILLIS).contains(&millis) {
            Ok(Period(millis))
        } else {
            Err(OptionError::new("period", format_args!("{millis} ms"), ACCEPTED))
        }
    }

    /// Returns its milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns its nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0 * 1_000_000
    }

    /// Returns the same length as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl FromStr for Period {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let wrong = || OptionError::new("period", format_args!("{text:?}"), ACCEPTED);
        let mut rest = text.trim();
        let mut total: u64 = 0;
        let mut smaller_than = u64::MAX;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let &(_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(wrong)?;
            // Units come once each, largest first: "30m1h" and "1m1m" are more likely slips than meant.
            if unit >= smaller_than {
                return Err(wrong());
            }
            smaller_than = unit;
            rest = &rest[letters..];
            total = number.checked_mul(unit).and_then(|span| total.checked_add(span)).ok_or_else(wrong)?;
        }
        Period::from_millis(total).map_err(|_| wrong())
    }
}

impl TryFrom<&str> for Period {
    type Error = OptionError;

    fn try_from(text: &str) -> Result<Self, OptionError> {
        text.parse()
    }
}

/// Milliseconds.
impl TryFrom<u64> for Period {
    type Error = OptionError;

    fn try_from(millis: u64) -> Result<Self, OptionError> {
        Period::from_millis(millis)
    }
}

/// Whole milliseconds only: a period that would have to be rounded is an error.
impl TryFrom<Duration> for Period {
    type Error = OptionError;

    fn try_from(span: Duration) -> Result<Self, OptionError> {
        let whole = span.subsec_nanos().is_multiple_of(1_000_000);
        u64::try_from(span.as_millis())
            .ok()
            .filter(|_| whole)
            .and_then(|millis| Period::from_millis(millis).ok())
            .ok_or_else(|| OptionError::new("period", format_args!("{span:?}"), ACCEPTED))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (name, unit) in UNITS {
            if rest >= unit {
                write!(f, "{}{name}", rest / unit)?;
                rest %= unit;
            }
        }
        Ok(())
    }
}
