//! How long it takes from the call that sends a task to its start, with a worker that has nothing else to do.

use super::{
    contestant::Contestant,
    stage::{Limit, Order, Stage},
    standings::{Better, Standings, cases_of},
};
use crate::suite::Suite;

const MEDIAN_BEST: &str = "start latency: p50, beside the best";
const SLOWEST_BEST: &str = "start latency: p99, beside the best";
const MEDIAN: &str = "start latency: p50";
const SLOWEST: &str = "start latency: p99";
/// How long after one the next is sent, in milliseconds.
const INTERVAL: u32 = 20;
const CONCURRENCY: u32 = 8;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let each = cases_of(&[MEDIAN, SLOWEST]);
    if !suite.wants_any(&[&[MEDIAN_BEST, SLOWEST_BEST], &each[..]].concat()) {
        return Ok(());
    }
    let count = if suite.is_quick() { 25 } else { 300 };
    let (mut median, mut slowest) = (Standings::default(), Standings::default());
    for turn in stage.rounds(2) {
        for contestant in turn {
            match one(stage, &contestant, count) {
                Ok(waits) => {
                    median.note(contestant.name, percentile(&waits, 50) * 1e3);
                    slowest.note(contestant.name, percentile(&waits, 99) * 1e3);
                }
                Err(error) => {
                    suite.remark(format!("latency: {} left out of a round: {error}", contestant.name));
                }
            }
        }
    }
    median.add_best(suite, MEDIAN_BEST, "ms", Better::Less);
    slowest.add_best(suite, SLOWEST_BEST, "ms", Better::Less);
    median.add_each(suite, MEDIAN, "ms");
    slowest.add_each(suite, SLOWEST, "ms");
    Ok(())
}

/// All waits in seconds, sorted.
fn one(stage: &Stage, contestant: &Contestant, count: u32) -> Result<Vec<f64>, String> {
    let store = stage.store(contestant)?;
    let more = [("interval-ms", INTERVAL), ("concurrency", CONCURRENCY)];
    let order =
        Order { command: "latency", database: &store, count, keys: 1, limit: Limit::None, more: &more };
    let lines = stage.whole(contestant, &order)?;
    stage.discard(contestant, &store)?;
    let mut waits: Vec<f64> = lines.iter().filter_map(|line| line.get("wait")?.as_f64()).collect();
    if waits.len() != count as usize {
        return Err(format!("{} of {count} tasks started", waits.len()));
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}

/// The smallest that so many percent do not exceed.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn a_percentile_is_one_of_the_figures() {
        let figures: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((percentile(&figures, 50), percentile(&figures, 99)), (100.0, 198.0));
        assert_eq!(percentile(&figures[..1], 99), 1.0);
        assert!(percentile(&[], 50).is_nan());
    }
}
