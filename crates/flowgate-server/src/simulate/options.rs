//! What is asked: limits, a workload, and what is wanted of the answer.
//!
//! Owns the options of `flowgate simulate`, their defaults and the words for a value that is not accepted.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use flowgate::{OptionError, Period};
use flowgate_core::Limits;

use super::{
    durations::Durations,
    workload::{Frequency, Offered, Recipe},
};
use crate::cli::{between, whole};

/// The most candidates of one comparison.
const MOST_CANDIDATES: usize = 32;
const MOST_KEYS: u32 = 1_000_000;

pub(crate) const SIMULATE_HELP: &str = "\
Examples:
  flowgate simulate --arrivals 50/s --duration lognormal:80ms,900ms --goal 100ms
      compares several `max` around what the work needs, and names the smallest whose p99 wait is at most 100 ms
  flowgate simulate --max 4..12 --queue 20 --timeout 2s --arrivals 50/s --duration exp:120ms --plot waits.svg
  flowgate simulate --max 2 --rate 20 --period 1m --keys 500 --skew 1.1 --arrivals 30/s --duration 1s --for 6h
  flowgate simulate --max 8,16 --trace requests.csv

A trace is CSV with a heading, or one line of JSON per entry: at_ms (since any origin), duration_ms (of the work alone),
and optionally key and weight. Other columns are ignored.

The rules are those of a gate, played in virtual time. The same seed gives the same output.
Exit status: 0; 2 if an option or the trace is wrong; 1 for any other failure.";

/// Says what limits would do to a workload.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateOptions {
    /// How many may be in flight at once, for each key: 8, or several to compare: 4,8,16 or 4..12 [default: around what
    /// the workload needs, and more if that does not reach the --goal; none if there is a --rate]
    #[arg(long, value_name = "N,N,… | N..N", value_parser = Candidates::read, help_heading = "Limits")]
    pub(super) max: Option<Candidates>,

    /// How many may start per period, for each key
    #[arg(long, value_name = "N", value_parser = whole::<1>, help_heading = "Limits")]
    rate: Option<u32>,

    /// The period of the rate
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time, requires = "rate", help_heading = "Limits")]
    period: Duration,

    /// Make the rate a bucket that allows at most this many starts at once
    #[arg(long, value_name = "N", value_parser = whole::<1>, requires = "rate", help_heading = "Limits")]
    burst: Option<u32>,

    /// Spread the starts of the rate evenly, instead of allowing them all at the beginning of a period
    #[arg(long, requires = "rate", conflicts_with = "burst", help_heading = "Limits")]
    smooth: bool,

    /// How many may wait in line, for each key [default: any number]
    #[arg(long, value_name = "N", value_parser = whole::<0>, conflicts_with = "reject", help_heading = "Limits")]
    queue: Option<u32>,

    /// How long an entry may wait [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "reject", help_heading = "Limits")]
    timeout: Option<Duration>,

    /// Once a line has lasted for INTERVAL, serve the newest first and refuse what has waited for TARGET
    #[arg(long, value_name = "TARGET,INTERVAL", value_parser = codel, conflicts_with = "reject", help_heading = "Limits")]
    codel: Option<(Duration, Duration)>,

    /// Refuse instead of waiting
    #[arg(long, help_heading = "Limits")]
    reject: bool,

    /// How much work arrives: 50/s, 300/1m or 12.5/s
    #[arg(long, value_name = "N/TIME", value_parser = frequency, required_unless_present = "trace", help_heading = "Workload")]
    arrivals: Option<Frequency>,

    /// Space arrivals evenly, instead of at random (Poisson)
    #[arg(long, conflicts_with = "trace", help_heading = "Workload")]
    even: bool,

    /// How long the work takes: 120ms, exp:MEAN or lognormal:P50,P99
    #[arg(long, value_name = "TIMES", value_parser = Durations::read, required_unless_present = "trace",
        help_heading = "Workload")]
    duration: Option<Durations>,

    /// How many keys there are
    #[arg(long, value_name = "N", default_value = "1", value_parser = between::<1, MOST_KEYS>,
        conflicts_with = "trace", help_heading = "Workload")]
    keys: u32,

    /// How uneven keys are: the n-th gets a share of 1/n^SKEW; 0: all the same, 1: as in many real workloads
    #[arg(long, value_name = "SKEW", default_value = "0", value_parser = skew, conflicts_with = "trace",
        help_heading = "Workload")]
    skew: f64,

    /// How long work keeps arriving
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = time, conflicts_with = "trace",
        help_heading = "Workload")]
    span: Duration,

    /// The random seed; another one gives another workload of the same kind
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed, conflicts_with = "trace", help_heading = "Workload")]
    seed: u64,

    /// Play a recorded workload instead; `-` reads standard input
    #[arg(long, value_name = "PATH", conflicts_with_all = ["arrivals", "duration"], help_heading = "Workload")]
    pub(super) trace: Option<PathBuf>,

    /// The p99 wait to aim for: names the smallest `max` that reaches it with nobody refused
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Output")]
    pub(super) goal: Option<Duration>,

    /// Draw the candidates side by side into this file, as SVG
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub(super) plot: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    /// Write the workload to this file as a trace, to play it again
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub(super) save_trace: Option<PathBuf>,

    /// Also play it through a real gate, which takes as long as the workload does, and show both
    #[arg(long, help_heading = "Output")]
    pub(super) real: bool,
}

/// Several `max` to compare, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidates(Vec<u32>);

impl SimulateOptions {
    /// What is to be drawn, if nothing is recorded.
    pub(super) fn recipe(&self) -> Option<Recipe> {
        Some(Recipe {
            arrivals: self.arrivals?,
            is_even: self.even,
            durations: self.duration?,
            keys: self.keys,
            skew: self.skew,
            span: self.span,
            seed: self.seed,
        })
    }

    /// The limits of each candidate.
    pub(super) fn candidates(&self, offered: &Offered) -> Result<Vec<Limits>, OptionError> {
        let maxima: Vec<Option<u32>> = match (&self.max, self.rate) {
            (Some(candidates), _) => candidates.0.iter().copied().map(Some).collect(),
            (None, Some(_)) => vec![None],
            (None, None) => around(offered).into_iter().map(Some).collect(),
        };
        maxima.into_iter().map(|max| self.limits(max)).collect()
    }

    /// Whether the candidates were chosen for the workload, with something to reach: then there may be larger ones.
    pub(super) fn may_try_more(&self) -> bool {
        self.goal.is_some() && self.max.is_none() && self.rate.is_none() && !self.real
    }

    pub(super) fn limits(&self, max: Option<u32>) -> Result<Limits, OptionError> {
        let mut limits = Limits::builder();
        if let Some(max) = max {
            limits = limits.max(max);
        }
        if let Some(rate) = self.rate {
            limits = limits.rate(rate, self.period);
        }
        if self.smooth {
            limits = limits.smooth();
        }
        if let Some(burst) = self.burst {
            limits = limits.burst(burst);
        }
        if let Some(queue) = self.queue {
            limits = limits.queue(queue);
        }
        if let Some(timeout) = self.timeout {
            limits = limits.timeout(timeout);
        }
        if let Some((target, interval)) = self.codel {
            limits = limits.codel(target, interval);
        }
        if self.reject {
            limits = limits.reject();
        }
        limits.build()
    }
}

/// From too few for what the hottest key needs to three times as many, each once.
fn around(offered: &Offered) -> Vec<u32> {
    let least = f64::from(offered.heaviest);
    let of = |share: f64| (offered.hottest * share).ceil().clamp(least, 1e9) as u32;
    let mut maxima: Vec<u32> = [0.8, 1.0, 1.15, 1.3, 1.5, 2.0, 3.0].map(of).to_vec();
    // Where little is needed, shares fall together: then the next few numbers.
    maxima.extend((1..=4).map(|more| of(1.0) + more));
    maxima.sort_unstable();
    maxima.dedup();
    maxima
}

impl Candidates {
    /// What a text says.
    fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "accepted: whole numbers from 1 to 1000000000, as 8, as 4,8,16 or as 4..12, at most {MOST_CANDIDATES} of them"
            )
        };
        let number = |text: &str| {
            text.trim().parse::<u32>().ok().filter(|number| (1..=1_000_000_000).contains(number))
        };
        let mut maxima = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once("..").unwrap_or((part, part));
            let (from, to) = (number(from).ok_or_else(wrong)?, number(to).ok_or_else(wrong)?);
            if from > to || (to - from) as usize >= MOST_CANDIDATES {
                return Err(wrong());
            }
            maxima.extend(from..=to);
        }
        maxima.sort_unstable();
        maxima.dedup();
        if maxima.len() > MOST_CANDIDATES { Err(wrong()) } else { Ok(Candidates(maxima)) }
    }
}

fn time(text: &str) -> Result<Duration, &'static str> {
    text.parse::<Period>()
        .map(Period::as_duration)
        .map_err(|_| "accepted: a time from 1ms to 366d, like 250ms, 10s, 1m or 1h30m")
}

fn codel(text: &str) -> Result<(Duration, Duration), &'static str> {
    let wrong = "accepted: two times, like 20ms,100ms";
    let (target, interval) = text.split_once(',').ok_or(wrong)?;
    Ok((time(target).map_err(|_| wrong)?, time(interval).map_err(|_| wrong)?))
}

fn frequency(text: &str) -> Result<Frequency, &'static str> {
    let wrong = "accepted: a number in a time, like 50/s, 300/1m or 12.5/s";
    let (count, period) = text.split_once('/').ok_or(wrong)?;
    let count =
        count.trim().parse().ok().filter(|count: &f64| count.is_finite() && *count > 0.0).ok_or(wrong)?;
    let period = if period.starts_with(|first: char| first.is_ascii_digit()) {
        period.to_owned()
    } else {
        format!("1{period}")
    };
    Ok(Frequency { count, period: time(&period).map_err(|_| wrong)? })
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("accepted: a whole number from 0 to {}", u64::MAX))
}

fn skew(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok().filter(|number| (0.0..=10.0).contains(number));
    number.ok_or("accepted: a number from 0 to 10")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_numbers_lists_and_ranges() {
        let read = |text| Candidates::read(text).map(|candidates| candidates.0);
        assert_eq!(read("8"), Ok(vec![8]));
        assert_eq!(read("16,4,8,4"), Ok(vec![4, 8, 16]));
        assert_eq!(read("4..6, 9"), Ok(vec![4, 5, 6, 9]));
        for text in ["", "0", "4..", "6..4", "1..100", "a", "-1", "1000000001"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_frequency_is_a_number_in_a_time() {
        let in_a_minute = |text| frequency(text).map(|read| read.in_span(Duration::from_secs(60)));
        assert_eq!(in_a_minute("50/s"), Ok(3000.0));
        assert_eq!(in_a_minute("300/1m"), Ok(300.0));
        assert_eq!(in_a_minute("12.5/500ms"), Ok(1500.0));
        for text in ["", "50", "50/", "0/s", "-1/s", "inf/s", "50/fortnight", "x/s"] {
            assert!(in_a_minute(text).is_err(), "{text}");
        }
    }

    #[test]
    fn without_a_max_the_candidates_reach_from_too_few_to_plenty() {
        let offered = |hottest| Offered {
            arrivals: 9,
            keys: 3,
            slots: 100.0,
            hottest,
            mean: Duration::from_secs(1),
            span: Duration::from_secs(9),
            heaviest: 1,
        };
        assert_eq!(around(&offered(10.0)), [8, 10, 11, 12, 13, 14, 15, 20, 30]);
        assert_eq!(around(&offered(0.2)), [1, 2, 3, 4, 5]);
    }
}
