//! Whether as many tasks go through in the last second as in the first, while somebody else keeps a transaction open.
//!
//! While that lasts, PostgreSQL removes no row that it might still see: whatever steps over rows that are gone gets slower.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use flowgate_tasks::{
    store::StoreError,
    worker::{Failure, Handlers, Worker, WorkerOptions},
};
use tokio::{sync::oneshot, time::timeout};

use super::{
    own::{Kind, Own},
    stage::Stage,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const FREE: &str = "steady: the last quarter beside the first";
const HELD: &str = "steady: the last quarter beside the first, a transaction open elsewhere";
const BESIDE: &str = "steady: a transaction open elsewhere, beside none";
const KEYS: u32 = 100;
const AT_ONCE: u32 = 200;
/// At most so many wait.
const BACKLOG: u32 = 5_000;
const BATCH: u32 = 500;
const STOP: Duration = Duration::from_secs(10);
/// Keeps what it sees for longer than any run.
const HOLD: &str = "select pg_sleep(3600)";
const LET_GO: &str =
    "select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_sleep(3600)'";

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[FREE, HELD, BESIDE]) {
        return Ok(());
    }
    let span = Duration::from_secs(if suite.is_quick() { 4 } else { 24 });
    let free = one(stage, span, false)?;
    let held = one(stage, span, true)?;
    for (case, flow) in [(FREE, &free), (HELD, &held)] {
        let question = Question::new(case, "1/s").against("the first quarter").goal(Goal::at_least(0.8));
        suite.add(question.beside(flow.last, flow.first));
    }
    suite.add(Question::new(BESIDE, "1/s").against("no such transaction").beside(held.last, free.last));
    Ok(())
}

/// Tasks in a second.
struct Flow {
    first: f64,
    last: f64,
}

/// Sends and drains at the same time, for so long.
fn one(stage: &Stage, span: Duration, is_held: bool) -> Result<Flow, String> {
    let own = Own::open(stage, Kind::Postgres)?;
    let url = own.url().ok_or("it is a database")?;
    let postgres = stage.postgres();
    thread::scope(|scope| {
        if is_held {
            // It ends with an error, for its session is ended.
            scope.spawn(move || drop(postgres.psql(url, HOLD)));
            wait_for_it(stage, url)?;
        }
        let flow = own.run(flow(&own, span));
        let ended = postgres.psql(url, LET_GO).map_err(|error| error.to_string());
        ended.and(flow)
    })
}

fn wait_for_it(stage: &Stage, url: &str) -> Result<(), String> {
    let sleeps =
        format!("select count(*) from pg_stat_activity where query = '{HOLD}' and backend_xmin is not null");
    let end = Stage::deadline();
    while stage.postgres().psql(url, &sleeps).map_err(|error| error.to_string())?.trim() != "1" {
        if Instant::now() > end {
            return Err("the other transaction did not begin".to_owned());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

async fn flow(own: &Own<'_>, span: Duration) -> Result<Flow, StoreError> {
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let handlers = Handlers::new().on("task", move |_: u32| {
        count.fetch_add(1, Ordering::AcqRel);
        async { Ok::<(), Failure>(()) }
    });
    let options = WorkerOptions { processes: AT_ONCE, ..WorkerOptions::default() };
    let worker = Worker::new(Arc::clone(&own.store), handlers, options)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async { drop(stopped.await) }));
    let (start, mut sent) = (Instant::now(), 0);
    // When so much of the span was over, and how many had run by then.
    let mut marks: Vec<(f64, u32)> = Vec::new();
    while marks.len() < 5 {
        let ran = ran.load(Ordering::Acquire);
        if start.elapsed() >= span.mul_f64(marks.len() as f64 / 4.0) {
            marks.push((start.elapsed().as_secs_f64(), ran));
        }
        if sent - ran < BACKLOG {
            own.store
                .send((sent..sent + BATCH).map(|number| own.task("task", number % KEYS)).collect())
                .await?;
            sent += BATCH;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(stop);
    let _ = timeout(STOP, working).await;
    let rate =
        |from: usize| f64::from(marks[from + 1].1 - marks[from].1) / (marks[from + 1].0 - marks[from].0);
    Ok(Flow { first: rate(0), last: rate(3) })
}
