//! Many callers of one process who never wait for a slot: how many enter and leave in a second.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{
    recipe::{self, Door, told},
    stage::{Stage, Store},
};
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

const CALLERS: u32 = 200;
const CASES: [(Store, &str, u32); 4] = [
    (Store::Redis, "redis: 200 callers, one lane", 1),
    (Store::Redis, "redis: 200 callers, 1,000 lanes", 1_000),
    (Store::Postgres, "postgres: 200 callers, one lane", 1),
    (Store::Postgres, "postgres: 200 callers, 1,000 lanes", 1_000),
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for (store, case, lanes) in CASES {
        if !suite.wants(case) {
            continue;
        }
        let (millis, rounds) = if suite.is_quick() { (200, 1) } else { (1_500, 3) };
        let url = stage.url(store);
        let (mut doors, peer) = stage.runtime.block_on(async {
            let gate = recipe::wide_gate(url, "throng").await?;
            let ours: Vec<Door> = (0..CALLERS).map(|_| Door::Ours(gate.clone())).collect();
            let mut recipes = Vec::new();
            // Sessions of PostgreSQL are few, and each has a lock of its own here.
            let (count, peer) = match store {
                Store::Redis => (CALLERS, "sorted set"),
                Store::Postgres => (recipe::MAX, "8 advisory locks"),
            };
            for number in 0..count {
                recipes.push(Door::recipe(store, url, number).await?.wide());
            }
            Ok::<_, String>(([ours, recipes], peer))
        })?;
        let mut failed = None;
        let [ours, recipe] = measure::in_turn(rounds, |side| {
            let played = stage.runtime.block_on(play(&mut doors[side], lanes, Duration::from_millis(millis)));
            played.unwrap_or_else(|error| {
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

/// All of them at once: entries in a second.
async fn play(doors: &mut Vec<Door>, lanes: u32, span: Duration) -> Result<f64, String> {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for (number, mut door) in doors.drain(..).enumerate() {
        callers.spawn(async move {
            let mut entries = 0_u32;
            while start.elapsed() < span {
                let lane = (number as u32 * 7919 + entries) % lanes;
                let key = format!("throng-{lane}");
                let held = door.enter(&key).await?;
                door.leave(&key, held).await?;
                entries += 1;
            }
            Ok::<_, String>((door, entries))
        });
    }
    let mut entries = 0.0;
    while let Some(played) = callers.join_next().await {
        let (door, count) = played.map_err(told)??;
        doors.push(door);
        entries += f64::from(count);
    }
    Ok(entries / start.elapsed().as_secs_f64())
}
