//! What is told of a simulation.
//!
//! Owns the words and the JSON. Everything in it is the same each time for the same options.

use std::time::Duration;

use flowgate_core::Reason;
use serde_json::{Value, json};

use super::{
    real::Real,
    run::Outcome,
    tally::Tally,
    workload::{Offered, Workload},
};
use crate::commands::Table;

/// One in so many still waiting when the last had come: it did not keep up.
const KEPT_UP: u64 = 100;

/// All there is to tell.
pub(super) struct Report<'a> {
    pub(super) workload: &'a Workload,
    pub(super) offered: Offered,
    pub(super) outcomes: &'a [Outcome],
    pub(super) goal: Option<Duration>,
    /// What a real gate did, and what is said of the workload as it went there.
    pub(super) real: Option<&'a (Real, Tally)>,
}

impl Report<'_> {
    /// As text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.headline(), self.table());
        for outcome in self.outcomes {
            if let Some(remark) = self.remark(outcome) {
                text += &format!("{remark}\n");
            }
        }
        text += &self.answer();
        if let Some(real) = self.real {
            text += &beside(&self.outcomes[0].tally, real);
        }
        text
    }

    /// What was asked, in a line or two.
    pub(super) fn headline(&self) -> String {
        let Offered { arrivals, keys, slots, hottest, mean, span, .. } = self.offered;
        let all = format!(
            "{}: {arrivals} in {}, {} each on average; {slots:.1} slots in use if nobody waited",
            self.workload,
            spell(span.as_nanos() as f64),
            spell(mean.as_nanos() as f64)
        );
        let hottest = if keys > 1 {
            format!(", {hottest:.1} of them under the busiest of {keys} keys")
        } else {
            String::new()
        };
        format!(
            "{all}{hottest}\n{}",
            self.outcomes.first().map_or(String::new(), |outcome| beside_max(outcome, keys))
        )
    }

    fn table(&self) -> String {
        let mut table = Table::new(&[
            "max",
            "done/s",
            "wait mean",
            "p50",
            "p99",
            "longest",
            "in flight",
            "used",
            "line",
            "left",
            "refused",
        ]);
        for Outcome { limits, tally } in self.outcomes {
            let waits = &tally.waits;
            table.row(vec![
                limits.max().map_or("-".to_owned(), |max| max.to_string()),
                number(tally.throughput()),
                spell(waits.mean()),
                spell(waits.quantile(0.5)),
                spell(waits.quantile(0.99)),
                spell(waits.max()),
                number(tally.in_flight()),
                tally
                    .utilisation(limits.max())
                    .map_or("-".to_owned(), |used| format!("{:.0}%", used * 100.0)),
                tally.most_waiting.to_string(),
                tally.left.to_string(),
                refused(tally, self.offered.arrivals),
            ]);
        }
        table.text()
    }

    fn remark(&self, outcome: &Outcome) -> Option<String> {
        let Outcome { limits, tally } = outcome;
        if u64::from(tally.left) * KEPT_UP <= self.offered.arrivals {
            return None;
        }
        let needs = match limits.max() {
            Some(max) if self.offered.hottest > f64::from(max) => {
                format!(": {:.1} slots are needed where there are {max}", self.offered.hottest)
            }
            _ => String::new(),
        };
        Some(format!(
            "{} cannot keep up: {} still waited when the last had arrived{needs}",
            named(outcome),
            tally.left
        ))
    }

    /// The least that is enough, if it was asked for.
    fn answer(&self) -> String {
        let Some(goal) = self.goal else {
            return "With --goal TIME, the smallest `max` whose p99 wait is at most TIME is named.\n"
                .to_owned();
        };
        let goal_text = spell(goal.as_nanos() as f64);
        match self.enough() {
            Some(outcome) => {
                format!(
                    "{} is enough: a p99 wait of at most {goal_text}, and nobody refused\n",
                    named(outcome)
                )
            }
            None => format!(
                "None of these is enough for a p99 wait of at most {goal_text} with nobody refused{}.\n",
                self.larger()
            ),
        }
    }

    /// What to try then. Where there is a rate, it may be that which holds, whatever the max is.
    fn larger(&self) -> String {
        let most = self.outcomes.iter().filter(|outcome| outcome.limits.rate().is_none());
        let most = most.filter_map(|outcome| outcome.limits.max()).max();
        most.map_or_else(String::new, |most| {
            let larger = [2, 4, 8].map(|times| most.saturating_mul(times).to_string()).join(",");
            format!("; try larger ones: --max {larger}")
        })
    }

    /// The first candidate that reaches the goal.
    pub(super) fn enough(&self) -> Option<&Outcome> {
        let goal = self.goal?;
        self.outcomes.iter().find(|outcome| outcome.reaches(goal))
    }

    /// As JSON. Times are in milliseconds.
    pub(super) fn json(&self) -> String {
        let Offered { arrivals, keys, slots, hottest, mean, span, .. } = self.offered;
        let whole = json!({
            "workload": {
                "says": self.workload.to_string(),
                "arrivals": arrivals,
                "keys": keys,
                "span_ms": span.as_nanos() as f64 / 1e6,
                "mean_duration_ms": mean.as_nanos() as f64 / 1e6,
                "slots_needed": slots,
                "slots_needed_by_hottest_key": hottest,
            },
            "candidates": self.outcomes.iter().map(candidate).collect::<Vec<_>>(),
            "enough": self.enough().and_then(|outcome| outcome.limits.max()),
            "real": self.real.map(|(real, simulated)| json!({
                "started": real.started,
                "refused": real.refused,
                "throughput_per_s": real.throughput(),
                "wait_ms": { "mean": real.mean_wait() / 1e6, "max": real.longest as f64 / 1e6 },
                "late_ms": real.late as f64 / 1e6,
                "simulated_as_it_went": {
                    "started": simulated.waits.count(),
                    "throughput_per_s": simulated.throughput(),
                    "wait_ms": { "mean": simulated.waits.mean() / 1e6, "max": simulated.waits.max() / 1e6 },
                },
            })),
        });
        format!("{whole:#}\n")
    }
}

fn candidate(outcome: &Outcome) -> Value {
    let Outcome { limits, tally } = outcome;
    let millis = |nanos: f64| nanos / 1e6;
    let refusals = Reason::ALL.iter().filter(|reason| tally.refusals[reason.index()] > 0);
    let refusals: serde_json::Map<String, Value> =
        refusals.map(|reason| (reason.to_string(), json!(tally.refusals[reason.index()]))).collect();
    json!({
        "max": limits.max(),
        "limits": limits.to_string(),
        "started": tally.waits.count(),
        "throughput_per_s": tally.throughput(),
        "wait_ms": {
            "mean": millis(tally.waits.mean()),
            "p50": millis(tally.waits.quantile(0.5)),
            "p99": millis(tally.waits.quantile(0.99)),
            "max": millis(tally.waits.max()),
        },
        "in_flight": { "mean": tally.in_flight(), "max": tally.most_in_use },
        "utilisation": tally.utilisation(limits.max()),
        "longest_line": tally.most_waiting,
        "left_in_line": tally.left,
        "refused": tally.refused_in_all(),
        "refusals": refusals,
        "window_ms": millis(tally.window as f64),
    })
}

/// What holds beside `max`, which is in the table.
fn beside_max(outcome: &Outcome, keys: usize) -> String {
    let limits = outcome.limits.to_string();
    let rest = match outcome.limits.max() {
        Some(max) => limits.strip_prefix(&format!("max {max}, ")).unwrap_or(&limits).to_owned(),
        None => limits,
    };
    let each = if keys > 1 { ", for each key" } else { "" };
    format!("limits beside max: {rest}{each}")
}

/// A candidate, by what tells it from the others.
pub(super) fn named(outcome: &Outcome) -> String {
    outcome.limits.max().map_or_else(|| outcome.limits.to_string(), |max| format!("max {max}"))
}

fn refused(tally: &Tally, arrivals: u64) -> String {
    if tally.refused_in_all() == 0 {
        return "0".to_owned();
    }
    let share = tally.refused_in_all() as f64 / arrivals.max(1) as f64 * 100.0;
    let reasons = Reason::ALL.iter().filter(|reason| tally.refusals[reason.index()] > 0);
    let reasons: Vec<String> =
        reasons.map(|reason| format!("{reason} {}", tally.refusals[reason.index()])).collect();
    format!("{share:.1}% ({})", reasons.join(", "))
}

/// The simulated and the real, side by side.
fn beside(tally: &Tally, (real, as_it_went): &(Real, Tally)) -> String {
    let mut table = Table::new(&["", "done/s", "wait mean", "longest", "started", "refused"]);
    let simulated = |name: &str, tally: &Tally| {
        vec![
            name.to_owned(),
            number(tally.throughput()),
            spell(tally.waits.mean()),
            spell(tally.waits.max()),
            tally.waits.count().to_string(),
            tally.refused_in_all().to_string(),
        ]
    };
    table.row(simulated("simulated", tally));
    table.row(vec![
        "a real gate".to_owned(),
        number(real.throughput()),
        spell(real.mean_wait()),
        spell(real.longest as f64),
        real.started.to_string(),
        real.refused.to_string(),
    ]);
    table.row(simulated("simulated, as it went", as_it_went));
    let off = |simulated: f64, real: f64| {
        if real == 0.0 { "0.0%".to_owned() } else { format!("{:+.1}%", (simulated / real - 1.0) * 100.0) }
    };
    let throughput = off(as_it_went.throughput(), real.throughput());
    let wait = off(as_it_went.waits.mean(), real.mean_wait());
    let late = spell(real.late as f64);
    format!(
        "\n{}\"As it went\" is the workload with the times that the machine's timers gave it; they were late by {late} at \
         worst.\n\
         Compared with that, the simulation is off by {throughput} in throughput and by {wait} in the mean wait.\n",
        table.text()
    )
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A time for people: three digits, and the unit they think in.
pub(super) fn spell(nanos: f64) -> String {
    let seconds = nanos / 1e9;
    match seconds {
        0.0 => "0".to_owned(),
        _ if seconds < 1e-3 => format!("{:.0}µs", seconds * 1e6),
        _ if seconds < 0.01 => format!("{}ms", three_digits(seconds * 1e3)),
        _ if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        _ if seconds < 120.0 => format!("{}s", three_digits(seconds)),
        _ if seconds < 7200.0 => format!("{}m", three_digits(seconds / 60.0)),
        _ if seconds < 172_800.0 => format!("{}h", three_digits(seconds / 3600.0)),
        _ => format!("{}d", three_digits(seconds / 86_400.0)),
    }
}

fn three_digits(value: f64) -> String {
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::spell;

    #[test]
    fn times_are_told_as_people_do() {
        let table = [
            (0.0, "0"),
            (850e3, "850µs"),
            (1.26e6, "1.26ms"),
            (1e6, "1ms"),
            (12.3e6, "12ms"),
            (1.5e9, "1.5s"),
            (60e9, "60s"),
        ];
        for (nanos, told) in table.into_iter().chain([(600e9, "10m"), (9000e9, "2.5h"), (3e14, "3.47d")]) {
            assert_eq!(spell(nanos), told);
        }
    }
}
