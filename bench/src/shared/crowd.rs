//! Many who want in at once, in two processes: how many get their turn in a second.

use std::time::Duration;

use super::{
    member::{self, Member},
    recipe::Who,
    stage::{Stage, Store},
};
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

/// Callers in each of the processes.
const CALLERS: u32 = 32;
const CASES: [(Store, &str, &str); 2] = [
    (Store::Redis, "redis: 64 callers for 8 slots, in 2 processes", "sorted set"),
    (Store::Postgres, "postgres: 64 callers for 8 slots, in 2 processes", "advisory locks"),
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for (store, case, peer) in CASES {
        if !suite.wants(case) {
            continue;
        }
        let (span, rounds) = if suite.is_quick() { (300, 1) } else { (3_000, 3) };
        let mut failed = None;
        let [ours, recipe] = measure::in_turn(rounds, |side| {
            let who = [Who::Ours, Who::Recipe][side];
            let span = Duration::from_millis(span);
            let member = Member { who, url: stage.url(store).to_owned(), callers: CALLERS, span };
            member::play_two(&member).unwrap_or_else(|error| {
                failed = Some(error);
                f64::NAN
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let question = Question::new(case, "entries/s").against(peer).goal(Goal::at_least(1.0));
        suite.add(question.beside(ours, recipe));
    }
    Ok(())
}
