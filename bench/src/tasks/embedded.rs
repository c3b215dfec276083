//! How many tasks that do nothing are drained in a second from a file, embedded: every commit waits for its disk.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use flowgate_tasks::{
    store::StoreError,
    worker::{Failure, Handlers, Worker, WorkerOptions},
};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{
    own::{Kind, Own, processor_time},
    stage::Stage,
};
use crate::{
    measure::median,
    report::{Goal, Question},
    suite::Suite,
};

const DRAIN: &str = "drain: ours with limits, on SQLite";
const INSERT: &str = "bulk insert: ours, on SQLite";
const COST: &str = "drain: ours on SQLite, processor time for a task";
const STORE_COST: &str = "drain: ours on SQLite, the same in the store's threads alone";
/// As much of their names as the kernel keeps. One of them writes, and does nearly all of it.
const STORE_THREADS: &str = "flowgate-sqlite";
const KEYS: u32 = 100;
/// How many one process holds at once, as in the other drains.
const AT_ONCE: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[DRAIN, INSERT, COST, STORE_COST]) {
        return Ok(());
    }
    let (count, rounds) = if suite.is_quick() { (5_000, 1) } else { (200_000, 3) };
    let (mut drained, mut inserted) = (Vec::new(), Vec::new());
    let (mut cost, mut store_cost) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let own = Own::open(stage, Kind::Sqlite)?;
        let start = Instant::now();
        own.fill("task", count, KEYS)?;
        inserted.push(f64::from(count) / start.elapsed().as_secs_f64());
        let before = ["", STORE_THREADS].map(processor_time);
        let took = own.run(drain(&own, count))?;
        drained.push(f64::from(count) / took.as_secs_f64());
        let after = ["", STORE_THREADS].map(processor_time);
        let [all, store] = [0, 1].map(|index| after[index].saturating_sub(before[index]));
        cost.push(all.as_secs_f64() * 1e6 / f64::from(count));
        store_cost.push(store.as_secs_f64() * 1e6 / f64::from(count));
    }
    suite.add(Question::new(DRAIN, "1/s").goal(Goal::ours_at_least(100_000.0)).alone(median(drained)));
    suite.add(Question::new(COST, "µs").alone(median(cost)));
    suite.add(Question::new(STORE_COST, "µs").alone(median(store_cost)));
    suite.add(Question::new(INSERT, "1/s").alone(median(inserted)));
    Ok(())
}

/// From the worker's start until the store says that all are over.
async fn drain(own: &Own<'_>, count: u32) -> Result<Duration, StoreError> {
    let (ran, all) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let told = Arc::clone(&all);
    let handlers = Handlers::new().on("task", move |_: u32| {
        if ran.fetch_add(1, Ordering::AcqRel) + 1 == count {
            told.notify_one();
        }
        async { Ok::<(), Failure>(()) }
    });
    let options = WorkerOptions { processes: AT_ONCE, ..WorkerOptions::default() };
    let worker = Worker::new(Arc::clone(&own.store), handlers, options)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let start = Instant::now();
    let working = tokio::spawn(worker.run(async { drop(stopped.await) }));
    let late = |_| StoreError::Database { doing: "drained", why: format!("not done in {PATIENCE:?}") };
    timeout(PATIENCE, all.notified()).await.map_err(late)?;
    while own.unfinished().await? > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = start.elapsed();
    drop(stop);
    let _ = timeout(PATIENCE, working).await;
    Ok(took)
}
