//! How long work takes: fixed, exponential or lognormal.
//!
//! Owns the text form and what is drawn from it.

use std::{fmt, time::Duration};

use flowgate::Period;

use super::random::Random;

/// The quantile of a normal distribution at 99 %.
const AT_99: f64 = 2.326_347_874;
/// Nothing takes longer than the longest period there is.
const LONGEST: f64 = 366.0 * 24.0 * 60.0 * 60.0 * 1e9;

const ACCEPTED: &str = "accepted: a time (120ms), exp:MEAN (exp:120ms), or lognormal:P50,P99 (lognormal:80ms,900ms); \
                        times from 1ms to 366d, and a P99 above the P50";

/// The spread of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Durations {
    /// All take this long.
    Fixed(Duration),
    /// Most are short, and some take several times the mean.
    Exponential(Duration),
    /// Half are below `p50`, one in a hundred above `p99`: as services mostly are.
    Lognormal { p50: Duration, p99: Duration },
}

impl Durations {
    /// What a text says.
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        let time = |text: &str| text.parse::<Period>().map(Period::as_duration).map_err(|_| ACCEPTED);
        match text.split_once(':') {
            None => Ok(Durations::Fixed(time(text)?)),
            Some(("exp", mean)) => Ok(Durations::Exponential(time(mean)?)),
            Some(("lognormal", both)) => {
                let (p50, p99) = both.split_once(',').ok_or(ACCEPTED)?;
                let (p50, p99) = (time(p50)?, time(p99)?);
                if p50 < p99 { Ok(Durations::Lognormal { p50, p99 }) } else { Err(ACCEPTED) }
            }
            Some(_) => Err(ACCEPTED),
        }
    }

    /// One of them, in nanoseconds; at least one.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let nanos = match self {
            Durations::Fixed(time) => return time.as_nanos() as u64,
            Durations::Exponential(mean) => random.exponential(mean.as_nanos() as f64),
            Durations::Lognormal { p50, p99 } => {
                let sigma = (p99.as_secs_f64() / p50.as_secs_f64()).ln() / AT_99;
                p50.as_nanos() as f64 * (sigma * random.normal()).exp()
            }
        };
        nanos.clamp(1.0, LONGEST) as u64
    }
}

impl fmt::Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durations::Fixed(time) => write!(f, "{time:?} each"),
            Durations::Exponential(mean) => write!(f, "exponential, {mean:?} on average"),
            Durations::Lognormal { p50, p99 } => write!(f, "lognormal, p50 {p50:?}, p99 {p99:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_whole_or_told_what_is_accepted() {
        for text in ["120ms", "exp:120ms", "lognormal:80ms,900ms"] {
            assert!(Durations::read(text).is_ok(), "{text}");
        }
        for text in
            ["", "120", "exp:", "exp", "normal:1s", "lognormal:1s", "lognormal:1s,1s", "lognormal:2s,1s"]
        {
            assert_eq!(Durations::read(text), Err(ACCEPTED), "{text}");
        }
    }

    #[test]
    fn a_lognormal_has_the_quantiles_it_was_given() {
        let durations = Durations::read("lognormal:80ms,900ms").expect("a spread");
        let mut random = Random::new(3, 1);
        let draws: Vec<u64> = (0..200_000).map(|_| durations.draw(&mut random)).collect();
        let above =
            |limit: u64| draws.iter().filter(|&&nanos| nanos > limit).count() as f64 / draws.len() as f64;
        assert!((above(80_000_000) - 0.5).abs() < 0.01, "{}", above(80_000_000));
        assert!((above(900_000_000) - 0.01).abs() < 0.001, "{}", above(900_000_000));
    }
}
