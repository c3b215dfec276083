//! Many processes of one contestant at the tasks of one store, and what their handlers recorded.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    contestant::Contestant,
    overlap::{Judgement, Record},
    running::Running,
    stage::{Limit, Order, Stage},
};

/// Who is not done by then is judged by what it did.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// Who works, and at what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet {
    pub(super) processes: u32,
    /// How many tasks each of them may run at once.
    pub(super) at_once: u32,
    /// How many each of them claims ahead: soft caps, where ours has them. 0: none.
    pub(super) prefetch: u32,
    pub(super) count: u32,
    pub(super) keys: u32,
    pub(super) limit: Limit,
    /// How long a task takes, in milliseconds.
    pub(super) task_ms: u32,
}

impl Fleet {
    /// What comes of a cap of `max` for each key in so many rounds, each on a store of its own.
    pub(super) fn judged(
        &self,
        stage: &Stage,
        contestant: &Contestant,
        max: u32,
        rounds: usize,
    ) -> Result<Judgement, String> {
        let mut judged = Vec::new();
        for _ in 0..rounds {
            let records = self.records(stage, contestant)?;
            judged.push(Judgement::of(&records, max, self.keys).ok_or("not one task ran")?);
        }
        Judgement::of_rounds(&judged).ok_or_else(|| "there was no round".to_owned())
    }

    /// All have got ready before the first of them starts.
    fn records(&self, stage: &Stage, contestant: &Contestant) -> Result<Vec<Record>, String> {
        let Fleet { processes, at_once, prefetch, count, keys, limit, task_ms } = *self;
        let store = stage.store(contestant)?;
        let mut more = vec![("task-ms", task_ms), ("concurrency", at_once)];
        more.extend((prefetch > 0).then_some(("prefetch", prefetch)));
        let order = Order { command: "insert", database: &store, count, keys, limit, more: &more };
        stage.seconds(contestant, &order)?;
        let order = Order { command: "work", ..order };
        let mut running = Vec::new();
        for _ in 0..processes {
            running.push(stage.start(contestant, &order)?);
        }
        for process in &mut running {
            process.ready(Stage::deadline())?;
        }
        for process in &mut running {
            process.tell("go")?;
        }
        wait(&mut running, count)?;
        for process in &mut running {
            process.tell("stop")?;
        }
        let mut records = Vec::new();
        for process in running {
            records.extend(process.rest(Stage::deadline())?.iter().filter_map(Record::parse));
        }
        stage.discard(contestant, &store)?;
        Ok(records)
    }
}

/// Waits until all have run, or for as long as patience lasts.
fn wait(running: &mut [Running], count: u32) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    let mut ran = vec![0; running.len()];
    while ran.iter().sum::<u64>() < u64::from(count) && Instant::now() < end {
        for (process, ran) in running.iter_mut().zip(&mut ran) {
            while let Some(line) = process.look()? {
                *ran = line.get("ran").and_then(Value::as_u64).unwrap_or(*ran);
            }
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
