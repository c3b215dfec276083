//! One caller alone: what an entry and its exit take, and what a check of a rate takes.

use std::time::{Duration, Instant};

use super::{
    recipe::{self, Door, Redis, session, told},
    stage::{Stage, Store},
};
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

const REDIS: [&str; 3] =
    ["redis: enter and leave", "redis: enter and leave, by a PING", "redis: check of a rate"];
const POSTGRES: [&str; 4] = [
    "postgres: enter and leave",
    "postgres: enter and leave, by a SELECT 1",
    "postgres: enter and leave, by a commit",
    "postgres: check of a rate",
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if suite.wants_any(&REDIS) {
        redis(suite, stage)?;
    }
    if suite.wants_any(&POSTGRES) {
        postgres(suite, stage)?;
    }
    Ok(())
}

/// A subject: so many loops of a step that may fail, on the stage's runtime.
macro_rules! subject {
    ($stage:ident, $failed:ident, $body:block) => {
        |loops: u64| -> Duration {
            $stage.runtime.block_on(async {
                let start = Instant::now();
                for _ in 0..loops {
                    let step: Result<(), String> = async { $body }.await;
                    if let Err(error) = step {
                        $failed.set(Some(error));
                        break;
                    }
                }
                start.elapsed()
            })
        }
    };
}

fn redis(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let url = stage.url(Store::Redis);
    let failed = std::cell::Cell::new(None);
    let (mut ours, mut recipe, mut bare, rated) = stage.runtime.block_on(async {
        let ours = Door::Ours(recipe::gate(url, "single").await?);
        let recipe = Door::recipe(Store::Redis, url, 0).await?;
        Ok::<_, String>((ours, recipe, Redis::connect(url).await?, recipe::rated(url).await?))
    })?;
    let [enter, zset, ping] = measure::contest(
        suite.plan(),
        [
            &mut subject!(stage, failed, {
                let held = ours.enter("k").await?;
                ours.leave("k", held).await
            }),
            &mut subject!(stage, failed, {
                let held = recipe.enter("zset").await?;
                recipe.leave("zset", held).await
            }),
            &mut subject!(stage, failed, { bare.call(&["PING"]).await.map(drop) }),
        ],
    );
    let [check, incr] = measure::contest(
        suite.plan(),
        [
            &mut subject!(stage, failed, { rated.check_key("k").await.map_err(told) }),
            &mut subject!(stage, failed, {
                if bare.call(&["INCR", "counter"]).await? == "1" {
                    bare.call(&["EXPIRE", "counter", "3600"]).await?;
                }
                Ok(())
            }),
        ],
    );
    let [pair, floor, rate] = REDIS.map(|case| Question::new(case, "µs"));
    suite.add(pair.against("sorted set").goal(Goal::at_most(1.5)).beside(micros(enter), micros(zset)));
    suite.add(floor.against("one PING").beside(micros(enter), micros(ping)));
    suite.add(rate.against("INCR, EXPIRE").beside(micros(check), micros(incr)));
    failed.take().map_or(Ok(()), Err)
}

fn postgres(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let url = stage.url(Store::Postgres);
    let failed = std::cell::Cell::new(None);
    let (mut ours, mut recipe, bare, rated) = stage.runtime.block_on(async {
        let ours = Door::Ours(recipe::gate(url, "single").await?);
        let recipe = Door::recipe(Store::Postgres, url, 0).await?;
        let bare = session(url).await?;
        let table = "CREATE TABLE counters (key text PRIMARY KEY, count bigint); INSERT INTO counters VALUES ('k', 0)";
        bare.batch_execute(table).await.map_err(told)?;
        Ok::<_, String>((ours, recipe, bare, recipe::rated(url).await?))
    })?;
    let statements = ["SELECT 1", "UPDATE counters SET count = count + 1 WHERE key = 'k'"];
    let [select, update] = stage.runtime.block_on(async {
        Ok::<_, String>([
            bare.prepare(statements[0]).await.map_err(told)?,
            bare.prepare(statements[1]).await.map_err(told)?,
        ])
    })?;
    let [enter, lock, one, commit, check] = measure::contest(
        suite.plan().longer(3),
        [
            &mut subject!(stage, failed, {
                let held = ours.enter("k").await?;
                ours.leave("k", held).await
            }),
            &mut subject!(stage, failed, {
                let held = recipe.enter("k").await?;
                recipe.leave("k", held).await
            }),
            &mut subject!(stage, failed, { bare.execute(&select, &[]).await.map(drop).map_err(told) }),
            &mut subject!(stage, failed, { bare.execute(&update, &[]).await.map(drop).map_err(told) }),
            &mut subject!(stage, failed, { rated.check_key("k").await.map_err(told) }),
        ],
    );
    let [pair, floor, disk, rate] = POSTGRES.map(|case| Question::new(case, "µs"));
    suite.add(pair.against("advisory lock").beside(micros(enter), micros(lock)));
    suite.add(floor.against("one SELECT 1").beside(micros(enter), micros(one)));
    suite.add(disk.against("one commit").beside(micros(enter), micros(commit)));
    suite.add(rate.against("one commit").beside(micros(check), micros(commit)));
    failed.take().map_or(Ok(()), Err)
}

fn micros(nanos: f64) -> f64 {
    nanos / 1000.0
}
