//! Whether a claim takes as long however many tasks wait, and over however many keys.
//!
//! A claim is a worker's whole turn: ten that ended are settled and ten others taken, in one transaction that is on disk when
//! it returns. What was taken is sent anew outside of the measured time, so that as many wait at the end as at the beginning.

use std::time::{Duration, Instant};

use flowgate_tasks::store::{Claimed, End, NewWorker, Settle, StoreError, Turn, Want, WorkerId};

use super::{
    own::{Kind, Own, STORES},
    stage::Stage,
    standings::case_of,
};
use crate::{
    measure::{in_turn, median},
    report::{Goal, Question},
    suite::Suite,
};

/// How many tasks a claim takes.
const BATCH: u32 = 10;
const GOAL: f64 = 1.5;
/// Longer than any run.
const LEASE: Duration = Duration::from_secs(3_600);
const TASK: &str = "flat";

/// A line to claim from.
#[derive(Clone, Copy)]
struct Line {
    waiting: u32,
    keys: u32,
    name: &'static str,
}

const BY_WAITING: [Line; 3] = [
    Line { waiting: 1_000, keys: 100, name: "1,000 waiting" },
    Line { waiting: 100_000, keys: 100, name: "100,000 waiting" },
    Line { waiting: 2_000_000, keys: 100, name: "2,000,000 waiting" },
];
const BY_KEYS: [Line; 3] = [
    Line { waiting: 200_000, keys: 10, name: "10 keys" },
    Line { waiting: 200_000, keys: 1_000, name: "1,000 keys" },
    Line { waiting: 200_000, keys: 100_000, name: "100,000 keys" },
];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for kind in STORES {
        for lines in [BY_WAITING, BY_KEYS] {
            let cases = [1, 2].map(|index| case(kind, lines[index], lines[0]));
            if !suite.wants_any(&cases) {
                continue;
            }
            let share = if suite.is_quick() { 50 } else { 1 };
            let times = measure(stage, kind, lines, share, if suite.is_quick() { 1 } else { 5 })?;
            for (index, case) in [1, 2].into_iter().zip(cases) {
                let question = Question::new(case, "ms").against(lines[0].name).goal(Goal::at_most(GOAL));
                suite.add(question.beside(times[index], times[0]));
            }
        }
    }
    Ok(())
}

fn case(kind: Kind, line: Line, first: Line) -> &'static str {
    case_of(&format!("flat: a claim of ten, {} beside {}, on {}", line.name, first.name, kind.name()))
}

/// Milliseconds of a claim, the median of each line's.
fn measure(
    stage: &Stage,
    kind: Kind,
    lines: [Line; 3],
    share: u32,
    rounds: usize,
) -> Result<[f64; 3], String> {
    let mut benches = Vec::new();
    for line in lines {
        eprintln!("filling {} with {}", kind.name(), line.name);
        benches.push(Bench::set(stage, kind, line, share)?);
    }
    let mut failed = None;
    let times = in_turn(rounds, |index| {
        benches[index].claims(40).unwrap_or_else(|error| {
            failed = Some(error);
            f64::NAN
        })
    });
    failed.map_or(Ok(times), Err)
}

/// A store with a line, and a worker that claims from it.
struct Bench<'a> {
    own: Own<'a>,
    worker: WorkerId,
    held: Vec<Claimed>,
}

impl<'a> Bench<'a> {
    fn set(stage: &'a Stage, kind: Kind, line: Line, share: u32) -> Result<Self, String> {
        let own = Own::open(stage, kind)?;
        let keys = (line.keys / share).max(BATCH);
        own.fill(TASK, (line.waiting / share).max(2 * keys), keys)?;
        let worker =
            NewWorker { name: "flat".to_owned(), slots: 2 * BATCH, queues: Vec::new(), lease: LEASE };
        let worker = own.run(own.store.register(worker))?;
        let mut bench = Bench { own, worker, held: Vec::new() };
        // The first takes without giving back, and so locks the counters.
        let want = Want { slots: BATCH, per_queue: u32::MAX, with_locks: true };
        let turn = Turn { want: Some(want), ..Turn::default() };
        bench.held = bench.own.run(bench.own.store.turn(worker, turn))?.claimed;
        bench.claims(10)?;
        Ok(bench)
    }

    /// The median of so many, in milliseconds.
    fn claims(&mut self, times: u32) -> Result<f64, String> {
        let Bench { own, worker, held } = self;
        let mut took = Vec::new();
        own.run(async {
            for _ in 0..times {
                let keys: Vec<u32> = held.iter().filter_map(key_of).collect();
                own.store.send(keys.into_iter().map(|key| own.task(TASK, key)).collect()).await?;
                let end = End::Done { result: Vec::new() };
                let settles = held.drain(..).map(|task| Settle { task, end: end.clone() }).collect();
                let want = Want { slots: BATCH, per_queue: u32::MAX, with_locks: false };
                let turn = Turn { settles, want: Some(want), ..Turn::default() };
                let start = Instant::now();
                *held = own.store.turn(*worker, turn).await?.claimed;
                took.push(start.elapsed().as_secs_f64() * 1e3);
                if held.len() < BATCH as usize {
                    let why = format!("a claim took {} tasks where {BATCH} and more waited", held.len());
                    return Err(StoreError::Database { doing: "claimed", why });
                }
            }
            Ok(())
        })?;
        Ok(median(took))
    }
}

/// The key of a task is what it says.
fn key_of(task: &Claimed) -> Option<u32> {
    let record = flowgate_tasks::Record::from_bytes(&task.record).ok()?;
    serde_json::from_slice(&record.body).ok()
}
