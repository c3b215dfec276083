//! How many tasks are sent in a second by callers who send one at a time, and wait until it is safe.

use super::{
    contestant::Contestant,
    stage::{Limit, Order, Stage},
    standings::{Better, Standings, cases_of},
};
use crate::suite::Suite;

const BEST: &str = "single sends: 16 callers, beside the best";
const EACH: &str = "single sends: 16 callers";
const CALLERS: u32 = 16;
const LEAST: u32 = 160;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[&[BEST], &cases_of(&[EACH])[..]].concat()) {
        return Ok(());
    }
    let count = if suite.is_quick() { 800 } else { 8_000 };
    let mut standings = Standings::default();
    for turn in stage.rounds(3) {
        for contestant in turn {
            let count = if contestant.slowness > 1 { (count / 4).max(LEAST) } else { count };
            match one(stage, &contestant, count) {
                Ok(figure) => standings.note(contestant.name, figure),
                Err(error) => {
                    suite.remark(format!("sends: {} left out of a round: {error}", contestant.name));
                }
            }
        }
    }
    standings.add_best(suite, BEST, "1/s", Better::More);
    standings.add_each(suite, EACH, "1/s");
    Ok(())
}

fn one(stage: &Stage, contestant: &Contestant, count: u32) -> Result<f64, String> {
    let store = stage.store(contestant)?;
    let more = [("callers", CALLERS)];
    let order = Order { command: "send", database: &store, count, keys: 1, limit: Limit::None, more: &more };
    let seconds = stage.seconds(contestant, &order)?;
    stage.discard(contestant, &store)?;
    Ok(f64::from(count) / seconds)
}
