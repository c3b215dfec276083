//! The same workload through a real gate, by the clock on the wall.
//!
//! Owns the proof that a simulation can be believed: each arrival sleeps until its time, enters a gate of the
//! library, works by sleeping, and gives its pass back. It takes as long as the workload does.

use std::{sync::Arc, time::Duration};

use flowgate::{Gate, KeyedGate, Reason};
use flowgate_core::{Key, Limits};
use tokio::{runtime::Runtime, task::JoinSet, time::Instant};

use super::{
    failure::Failure,
    workload::{Arrival, Recorded, Workload},
};

/// What a real gate did.
#[derive(Clone, Debug, Default)]
pub(super) struct Real {
    pub(super) started: u64,
    pub(super) refused: u64,
    /// In nanoseconds, of those who started.
    pub(super) waited: u128,
    pub(super) longest: u64,
    /// How many ended within the window, and how long that was.
    pub(super) ended: u64,
    pub(super) window: u64,
    /// By how much those who came were late themselves, at worst: so far the machine kept up.
    pub(super) late: u64,
    /// Who came when, and how long its work really took: the timers of a machine are late, and a simulation is right about what
    /// it was told.
    pub(super) recorded: Recorded,
}

impl Real {
    /// In nanoseconds.
    pub(super) fn mean_wait(&self) -> f64 {
        self.waited as f64 / self.started.max(1) as f64
    }

    fn count(&mut self, went: &Went, window: Option<u64>) {
        self.late = self.late.max(went.late);
        self.recorded.arrivals.push(went.arrival);
        match went.outcome {
            Ok((wait, ended)) => {
                self.started += 1;
                self.waited += u128::from(wait);
                self.longest = self.longest.max(wait);
                self.ended += u64::from(window.is_none_or(|window| ended <= window));
                self.window = window.unwrap_or(self.window.max(ended));
            }
            Err(_) => self.refused += 1,
        }
    }

    pub(super) fn throughput(&self) -> f64 {
        self.ended as f64 / (self.window.max(1) as f64 / 1e9)
    }
}

/// How one entry went: as it really came and worked, by how much it was late, and then how long it waited and when it ended, in
/// nanoseconds since the begin.
struct Went {
    arrival: Arrival,
    late: u64,
    outcome: Result<(u64, u64), Reason>,
}

/// Plays it.
pub(super) fn play(limits: &Limits, workload: &Workload) -> Result<Real, Failure> {
    let runtime = Runtime::new().map_err(Failure::Start)?;
    runtime.block_on(play_now(limits, workload))
}

async fn play_now(limits: &Limits, workload: &Workload) -> Result<Real, Failure> {
    let gate = Arc::new(gate(limits)?);
    let keys: Vec<Key> =
        (0..workload.keys() as u32).map(|number| Key::from(workload.key(number).as_str())).collect();
    let window = workload.window().map(|span| span.as_nanos() as u64);
    let mut real = Real::default();
    let mut under_way = JoinSet::new();
    let begin = Instant::now();
    for arrival in workload.arrivals() {
        tokio::time::sleep_until(begin + Duration::from_nanos(arrival.at)).await;
        let (gate, key) = (Arc::clone(&gate), keys[arrival.key as usize].clone());
        under_way.spawn(async move { enter(&gate, key, arrival, begin).await });
        while let Some(Ok(went)) = under_way.try_join_next() {
            real.count(&went, window);
        }
    }
    while let Some(Ok(went)) = under_way.join_next().await {
        real.count(&went, window);
    }
    real.recorded.arrivals.sort_by_key(|arrival| arrival.at);
    real.recorded.keys = (0..workload.keys() as u32).map(|number| workload.key(number)).collect();
    real.recorded.window = workload.window();
    Ok(real)
}

async fn enter(gate: &KeyedGate, key: Key, arrival: Arrival, begin: Instant) -> Went {
    let came = Instant::now();
    let at = (came - begin).as_nanos() as u64;
    let entered = gate.enter_key_owned(key).weight(arrival.weight).await;
    let mut real = Arrival { at, ..arrival };
    let outcome = match entered {
        Ok(pass) => {
            let started = Instant::now();
            tokio::time::sleep(Duration::from_nanos(arrival.duration)).await;
            real.duration = started.elapsed().as_nanos() as u64;
            drop(pass);
            Ok(((started - came).as_nanos() as u64, begin.elapsed().as_nanos() as u64))
        }
        Err(refusal) => Err(refusal.reason),
    };
    Went { arrival: real, late: at.saturating_sub(arrival.at), outcome }
}

/// A gate with a lane for each key, and room for all of them.
fn gate(limits: &Limits) -> Result<KeyedGate, Failure> {
    let gate = Gate::builder().name("simulated").max(1).keyed().max_keys(1_000_000).build()?;
    gate.set_limits(*limits)?;
    Ok(gate)
}
