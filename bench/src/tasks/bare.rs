//! One bare durable commit: what lies between the end of a task and the start of the next in its slot, whoever does it.
//!
//! Owns the floor that hard caps are shown beside. Measured in the server itself, by one session that has it alone: no round
//! trip, no wake-up, and nobody else's commits to wait for.

use super::stage::Stage;
use crate::suite::Suite;

/// What it is called beside ours.
pub(super) const NAME: &str = "a bare commit";

/// How long one takes on average, in milliseconds: an update of one row, as often as tasks of 20 ms end in a slot.
pub(super) fn commit(suite: &Suite, stage: &Stage) -> Result<f64, String> {
    let times = if suite.is_quick() { 20 } else { 100 };
    let url = stage.new_database()?;
    let run = |sql: &str| stage.postgres().psql(&url, sql).map_err(|error| error.to_string());
    run("create table bare (times int, spent interval); insert into bare values (0, '0')")?;
    run(&format!(
        "do $$ declare begun timestamptz; total interval := '0'; begin for number in 1..{times} loop \
         perform pg_sleep(0.02); begun := clock_timestamp(); update bare set times = number; commit; \
         total := total + (clock_timestamp() - begun); end loop; update bare set spent = total; end $$"
    ))?;
    let spent = run("select extract(epoch from spent) * 1000 / times from bare")?;
    stage.drop_database(&url)?;
    spent.parse().map_err(|error| format!("a bare commit: {spent}: {error}"))
}

/// Which share of its time a slot is in use, if a commit of so long follows each task of so long.
pub(super) fn share(task_ms: u32, commit_ms: f64) -> f64 {
    f64::from(task_ms) / (f64::from(task_ms) + commit_ms)
}
