//! How many of a key with a million tasks waiting start before the first task of another key, once that is sent.
//!
//! A real worker with all its slots taken by the large key; its handlers count.

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
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    latency::percentile,
    own::{Own, STORES},
    stage::Stage,
    standings::case_of,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

/// How many one claim may take: all that the worker runs at once.
const BATCH: u32 = 64;
/// How long a task of the large key takes.
const TASK: Duration = Duration::from_millis(20);
const FIRSTS: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for kind in STORES {
        let [started, wait] = ["tasks that start before it", "its wait, p50"].map(|what| {
            case_of(&format!("neighbour: of a key with 1,000,000 waiting, {what}, on {}", kind.name()))
        });
        if !suite.wants_any(&[started, wait]) {
            continue;
        }
        let waiting = if suite.is_quick() { 20_000 } else { 1_000_000 };
        eprintln!("filling {} with one key of {waiting}", kind.name());
        let own = Own::open(stage, kind)?;
        own.fill("large", waiting, 1)?;
        let seen = own.run(watch(&own))?;
        let most = seen.iter().map(|seen| seen.started_before).max().unwrap_or(u32::MAX);
        let mut waits: Vec<f64> = seen.iter().map(|seen| seen.waited.as_secs_f64() * 1e3).collect();
        waits.sort_by(f64::total_cmp);
        let goal = Goal::ours_at_most(f64::from(BATCH));
        suite.add(Question::new(started, "tasks").goal(goal).alone(f64::from(most)));
        suite.add(Question::new(wait, "ms").alone(percentile(&waits, 50)));
    }
    Ok(())
}

/// What the first task of another key saw.
struct Seen {
    /// How many of the large key started between its being safe in the store and its start.
    started_before: u32,
    waited: Duration,
}

async fn watch(own: &Own<'_>) -> Result<Vec<Seen>, StoreError> {
    let started = Arc::new(AtomicU32::new(0));
    let (heard, mut firsts) = mpsc::channel(1);
    let count = Arc::clone(&started);
    let at = Arc::clone(&started);
    let handlers = Handlers::new()
        .on("large", move |_: u32| {
            count.fetch_add(1, Ordering::AcqRel);
            async {
                tokio::time::sleep(TASK).await;
                Ok::<(), Failure>(())
            }
        })
        .on("first", move |_: u32| {
            let seen = (at.load(Ordering::Acquire), Instant::now());
            let heard = heard.clone();
            async move { heard.send(seen).await.map_err(Failure::new) }
        });
    let options = WorkerOptions { processes: BATCH, drain: Duration::ZERO, ..WorkerOptions::default() };
    let worker = Worker::new(Arc::clone(&own.store), handlers, options)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async { drop(stopped.await) }));
    let late =
        |_| StoreError::Database { doing: "waited for a first task", why: "it never started".to_owned() };
    let mut seen = Vec::new();
    for key in 1..=FIRSTS {
        // The worker is in the midst of the large key, not at its beginning.
        let mark = started.load(Ordering::Acquire) + 2 * BATCH;
        let busy = async {
            while started.load(Ordering::Acquire) < mark {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, busy).await.map_err(late)?;
        let sent = Instant::now();
        own.store.send(vec![own.task("first", key)]).await?;
        let safe = started.load(Ordering::Acquire);
        let first = timeout(PATIENCE, firsts.recv()).await.map_err(late)?;
        let (count, start) = first.expect("the handler has the other end");
        let waited = start.saturating_duration_since(sent);
        seen.push(Seen { started_before: count.saturating_sub(safe), waited });
    }
    drop(stop);
    let _ = timeout(PATIENCE, working).await;
    Ok(seen)
}
