//! How many steps are done in a second, each recorded durably before the next: on one key, and over a thousand.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{
    endpoint::Workflow,
    stage::{Stage, Store, TOKEN},
};
use crate::{report::Question, suite::Suite};

const STEPS: usize = 5;
/// Longer than any round takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A case: its name, the store, how many runs, how many keys and how many of a key at once.
const CASES: [(&str, Store, usize, usize, u32); 4] = [
    ("steps: one key, SQLite", Store::Sqlite, 1000, 1, 64),
    ("steps: 1,000 keys, SQLite", Store::Sqlite, 1000, 1000, 1),
    ("steps: one key, Postgres", Store::Postgres, 1000, 1, 64),
    ("steps: 1,000 keys, Postgres", Store::Postgres, 1000, 1000, 1),
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let rounds = if suite.is_quick() { 1 } else { 3 };
    for (case, store, runs, keys, parallelism) in CASES {
        if !suite.wants(case) {
            continue;
        }
        let runs = if suite.is_quick() { runs / 5 } else { runs };
        let mut figures = Vec::new();
        for _ in 0..rounds {
            figures.push(one(stage, store, runs, keys, parallelism)?);
        }
        figures.sort_by(f64::total_cmp);
        suite.add(Question::new(case, "1/s").alone(figures[figures.len() / 2]));
    }
    Ok(())
}

fn one(stage: &Stage, store: Store, runs: usize, keys: usize, parallelism: u32) -> Result<f64, String> {
    let server = stage.server(store)?;
    stage.runtime.block_on(async {
        let (workflow, url) = Workflow::start(server.address(), TOKEN, STEPS).await?;
        let began = Instant::now();
        workflow.begin(&url, runs, |number| (format!("k{}", number % keys), parallelism)).await?;
        let ended = timeout(PATIENCE, workflow.ended(runs as u64)).await;
        ended.map_err(|_| "the runs did not end in time".to_owned())?;
        Ok((runs * STEPS) as f64 / began.elapsed().as_secs_f64())
    })
}
