//! A lane for each key, beside a map of semaphores: 100,000 keys, visited in an order that looks random.
//!
//! The map is filled before; ours needs nothing of the kind, for idle lanes have no state.

use std::{
    hint::black_box,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use dashmap::DashMap;
use flowgate::{Gate, KeyedGate};
use tokio::{runtime::Runtime, sync::Semaphore};

use crate::{
    keys::{Walk, shuffled},
    measure::{awaits, runtime},
    report::{Goal, Question},
    suite::Suite,
};

const KEYS: u32 = 100_000;
const MAX: u32 = 8;
const ALONE: &str = "keyed: 100,000 keys";
const AT_ONCE: &str = "keyed: 100,000 keys, two threads";
const PEER: &str = "DashMap of tokio semaphores";

type Semaphores = DashMap<String, Arc<Semaphore>, ahash::RandomState>;

pub(crate) fn run(suite: &mut Suite) {
    if !suite.wants_any(&[ALONE, AT_ONCE]) {
        return;
    }
    let keys = shuffled(KEYS);
    let gate = Gate::builder().max(MAX).keyed().max_keys(KEYS).build().expect("the options are right");
    let semaphores = Semaphores::with_hasher(ahash::RandomState::new());
    for key in &keys {
        semaphores.insert(key.clone(), Arc::new(Semaphore::new(MAX as usize)));
    }

    let here = runtime();
    let (mut our_walk, mut peer_walk) = (Walk::new(&keys), Walk::new(&keys));
    let goal = Goal::at_most(1.0).aim(0.69);
    suite.duel(
        Question::new(ALONE, "ns").against(PEER).goal(goal),
        |loops| ours(&here, &gate, &mut our_walk, loops),
        |loops| peer(&here, &semaphores, &mut peer_walk, loops),
    );
    suite.duel(
        Question::new(AT_ONCE, "ns").against(PEER).goal(goal),
        |loops| two_threads(&keys, |runtime, mut walk| ours(runtime, &gate, &mut walk, loops)),
        |loops| two_threads(&keys, |runtime, mut walk| peer(runtime, &semaphores, &mut walk, loops)),
    );
}

fn ours(runtime: &Runtime, gate: &KeyedGate, walk: &mut Walk<'_, String>, loops: u64) -> Duration {
    awaits!(runtime, loops, {
        let pass = gate.enter_key(walk.step()).await.expect("there is a slot");
        black_box(&pass);
    })
}

fn peer(runtime: &Runtime, semaphores: &Semaphores, walk: &mut Walk<'_, String>, loops: u64) -> Duration {
    awaits!(runtime, loops, {
        let found = semaphores.get(walk.step());
        let semaphore = Arc::clone(&found.expect("every key is in the map"));
        let permit = semaphore.acquire_owned().await.expect("it is open");
        black_box(&permit);
    })
}

/// Runs a side on two threads at once, each with its own runtime and half the keys ahead of the other: how long the
/// slower one took.
fn two_threads(keys: &[String], side: impl Fn(&Runtime, Walk<'_, String>) -> Duration + Sync) -> Duration {
    let start = Barrier::new(2);
    let one = |first: usize| {
        let runtime = runtime();
        start.wait();
        side(&runtime, Walk::from(keys, first))
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| one(keys.len() / 2));
        one(0).max(other.join().expect("no side panics"))
    })
}
