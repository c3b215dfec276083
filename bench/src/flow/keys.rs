//! What a message costs with few keys and with many: the server's own processor time, on SQLite, which is in the process.

use super::{
    stage::{Stage, Store},
    through,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const FEW: u32 = 10;
const MANY: [(&str, u32); 2] = [
    ("keys: processor time, 1,000 keys beside 10", 1_000),
    ("keys: processor time, 100,000 keys beside 10", 100_000),
];
/// Flat, but for what an index of so many costs.
const GOAL: f64 = 1.5;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&MANY.map(|case| case.0)) {
        return Ok(());
    }
    let count = if suite.is_quick() { 5_000 } else { 100_000 };
    let cost = |keys| {
        through::ours(stage, Store::Sqlite, count, keys, true).map(|drained| drained.cost.as_secs_f64() * 1e6)
    };
    let few = cost(FEW)?;
    for (case, keys) in MANY {
        if suite.wants(case) {
            let question = Question::new(case, "µs").against("10 keys").goal(Goal::at_most(GOAL));
            suite.add(question.beside(cost(keys)?, few));
        }
    }
    Ok(())
}
