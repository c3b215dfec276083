//! How often the store is asked for an entry and its exit: by the server's own count.

use tokio::task::JoinSet;

use super::{
    recipe::{self, Door, told},
    stage::{Stage, Store},
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const CASES: [(&str, u32); 2] = [
    ("redis: trips for an entry and its exit, 1 caller", 1),
    ("redis: trips for an entry and its exit, 64 callers", 64),
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for (case, callers) in CASES {
        if !suite.wants(case) {
            continue;
        }
        let each = if suite.is_quick() { 100 } else { 1_000 };
        let mut trips = [0.0; 2];
        for (is_ours, trips) in [true, false].into_iter().zip(&mut trips) {
            let before = asked(stage)?;
            stage.runtime.block_on(play(stage.url(Store::Redis), is_ours, callers, each))?;
            *trips = (asked(stage)? - before) as f64 / f64::from(callers * each);
        }
        let question = Question::new(case, "trips").against("sorted set").goal(Goal::at_most(1.0));
        suite.add(question.beside(trips[0], trips[1]));
    }
    Ok(())
}

async fn play(url: &str, is_ours: bool, callers: u32, each: u32) -> Result<(), String> {
    let gate = recipe::gate(url, "trips").await?;
    let mut tasks = JoinSet::new();
    for number in 0..callers {
        let mut door = match is_ours {
            true => Door::Ours(gate.clone()),
            false => Door::recipe(Store::Redis, url, number).await?,
        };
        // A slot for everybody: nobody has to try again.
        let key = format!("trips-{}", number / recipe::MAX);
        tasks.spawn(async move {
            for _ in 0..each {
                let held = door.enter(&key).await?;
                door.leave(&key, held).await?;
            }
            Ok::<_, String>(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// How many scripts and removals the server was asked for so far: all that entries and exits need.
fn asked(stage: &Stage) -> Result<u64, String> {
    let said = stage.redis.cli(&["INFO", "commandstats"]).map_err(told)?;
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    // What scripts do themselves is counted too, but these only callers ask for.
    let kinds = ["cmdstat_evalsha:", "cmdstat_zrem:"];
    Ok(said.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind))).filter_map(calls).sum())
}
