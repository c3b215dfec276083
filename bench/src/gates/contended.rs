//! Many tasks at one door: how fast, and how fair.
//!
//! 64 tasks on two threads share 8 slots; each enters, yields once while inside, and leaves, until time is up. Time per
//! operation is the length of the round divided by the operations of all tasks. Fairness is the operations of the task
//! that got in least, divided by those of the task that got in most.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use flowgate::Gate;
use tokio::{
    runtime::{Builder, Runtime},
    sync::Semaphore,
    task,
};

use super::door::Door;
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

const TASKS: usize = 64;
const MAX: u32 = 8;
const TIME: &str = "contended: 64 tasks over max 8, two threads";
const FAIRNESS: &str = "contended: fairness, fewest / most entries of a task";
const PEER: &str = "tokio acquire_owned";

const READY: u8 = 0;
const GO: u8 = 1;
const STOP: u8 = 2;

pub(crate) fn run(suite: &mut Suite) {
    if !suite.wants_any(&[TIME, FAIRNESS]) {
        return;
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("two threads can be had");
    let gate = Gate::builder().max(MAX).build().expect("the options are right");
    let semaphore = Arc::new(Semaphore::new(MAX as usize));
    let plan = suite.plan().longer(3);
    let mut fairness = [Vec::new(), Vec::new()];
    let [ours, peer] = measure::in_turn(plan.rounds, |side| {
        let stretch = match side {
            0 => stretch(&runtime, &gate, plan.round),
            _ => stretch(&runtime, &semaphore, plan.round),
        };
        fairness[side].push(stretch.fairness());
        stretch.nanos_per_entry()
    });
    let time = Question::new(TIME, "ns").against(PEER).goal(Goal::at_most(1.0));
    suite.add(time.beside(ours, peer));
    let [ours, peer] = fairness.map(measure::median);
    let fair = Question::new(FAIRNESS, "fewest/most").against(PEER).goal(Goal::at_least(0.95));
    suite.add(fair.beside(ours, peer));
}

/// What happened in one round.
struct Stretch {
    length: Duration,
    /// How often each task got in.
    entries: Vec<u64>,
}

impl Stretch {
    fn nanos_per_entry(&self) -> f64 {
        self.length.as_nanos() as f64 / self.entries.iter().sum::<u64>() as f64
    }

    fn fairness(&self) -> f64 {
        let fewest = self.entries.iter().min().copied().unwrap_or_default();
        let most = self.entries.iter().max().copied().unwrap_or_default();
        fewest as f64 / most as f64
    }
}

/// What the tasks of a round share.
#[derive(Default)]
struct Signal {
    phase: AtomicU8,
    ready: AtomicUsize,
}

fn stretch(runtime: &Runtime, door: &impl Door, length: Duration) -> Stretch {
    let signal = Arc::new(Signal::default());
    let tasks: Vec<_> = (0..TASKS).map(|_| runtime.spawn(visit(door.clone(), Arc::clone(&signal)))).collect();
    while signal.ready.load(Ordering::SeqCst) < TASKS {
        thread::yield_now();
    }
    let start = Instant::now();
    signal.phase.store(GO, Ordering::SeqCst);
    thread::sleep(length);
    signal.phase.store(STOP, Ordering::SeqCst);
    let length = start.elapsed();
    let entries = runtime.block_on(async {
        let mut entries = Vec::with_capacity(TASKS);
        for task in tasks {
            entries.push(task.await.expect("no task panics"));
        }
        entries
    });
    Stretch { length, entries }
}

/// One task: waits until all are there, then enters and leaves until time is up.
async fn visit(door: impl Door, signal: Arc<Signal>) -> u64 {
    signal.ready.fetch_add(1, Ordering::SeqCst);
    while signal.phase.load(Ordering::Relaxed) == READY {
        task::yield_now().await;
    }
    let mut entries = 0;
    while signal.phase.load(Ordering::Relaxed) == GO {
        let pass = door.pass().await;
        task::yield_now().await;
        drop(pass);
        entries += 1;
    }
    entries
}
