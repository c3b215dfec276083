//! What a long run costs: each delivery carries all steps so far.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{
    endpoint::Workflow,
    stage::{Stage, Store, TOKEN},
};
use crate::{report::Question, suite::Suite};

const STEPS: usize = 1000;
/// How many deliveries at each end of the run are set beside each other.
const END: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);

const CASES: [(&str, Store); 2] = [
    ("a run of 1,000 steps: its last 100, SQLite", Store::Sqlite),
    ("a run of 1,000 steps: its last 100, Postgres", Store::Postgres),
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for (case, store) in CASES {
        if !suite.wants(case) {
            continue;
        }
        let (last, first, bytes) = one(stage, store)?;
        suite.add(Question::new(case, "ms").against("its first 100").beside(last, first));
        suite.remark(format!("{case}: the last delivery carried {bytes} bytes"));
    }
    Ok(())
}

/// Milliseconds for a step at the end and at the beginning, and the size of the last delivery.
fn one(stage: &Stage, store: Store) -> Result<(f64, f64, usize), String> {
    let server = stage.server(store)?;
    stage.runtime.block_on(async {
        let (workflow, url) = Workflow::start(server.address(), TOKEN, STEPS).await?;
        workflow.begin(&url, 1, |_| ("long".to_owned(), 1)).await?;
        let ended = timeout(PATIENCE, workflow.ended(1)).await;
        ended.map_err(|_| "the run did not end in time".to_owned())?;
        let came = workflow.came();
        let each = |part: &[(Instant, usize)]| {
            let span = part.last().zip(part.first()).map(|(last, first)| last.0 - first.0);
            span.unwrap_or_default().as_secs_f64() * 1000.0 / (part.len() - 1) as f64
        };
        let bytes = came.last().map_or(0, |last| last.1);
        Ok((each(&came[came.len() - END..]), each(&came[..END]), bytes))
    })
}
