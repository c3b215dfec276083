//! Whether an entry takes as long however many keys there are: one pass out at a time, every key in turn.
//!
//! Keys that lie in memory cost cache misses of their own, more of them the more keys there are. So it is measured
//! twice: with keys that lie in memory, beside a walk that only hashes each one and adds it to an atomic, the walk taken
//! off; and with keys that are written on the spot, as one that was just read from a request.
//!
//! An entry waits for its key before it can do anything, and the next key is too far behind it for the processor to fetch it
//! meanwhile. A walk must do the same to be taken off fairly: its next step is known only when this key has been hashed. One that
//! runs ahead has the misses of many keys at once; it is told, too.

use std::{
    hint::black_box,
    str,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use flowgate::{Gate, KeyedGate};
use tokio::runtime::Runtime;

use crate::{
    keys::{Walk, shuffled, shuffled_numbers},
    measure::{self, awaits, calls, runtime},
    report::{Goal, Question},
    suite::Suite,
};

const SIZES: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
const STORED: [&str; 4] = [
    "flat: 1,000 stored keys",
    "flat: 10,000 stored keys",
    "flat: 100,000 stored keys",
    "flat: 1,000,000 stored keys",
];
const NET: &str = "flat: 1,000,000 stored keys, walk taken off";
const AHEAD: &str = "flat: 1,000,000 stored keys, a walk that runs ahead taken off";
const ON_THE_SPOT: &str = "flat: 1,000,000 keys written on the spot";
const PEER: &str = "ours at 1,000 keys";
const GOAL: f64 = 1.5;

pub(crate) fn run(suite: &mut Suite) {
    stored(suite);
    on_the_spot(suite);
}

fn stored(suite: &mut Suite) {
    let [a, b, c, d] = STORED;
    if !suite.wants_any(&[a, b, c, d, NET, AHEAD]) {
        return;
    }
    let runtime = runtime();
    let gate = gate();
    let hasher = ahash::RandomState::new();
    let (mut net, mut ahead) = (Vec::new(), Vec::new());
    for (size, case) in SIZES.into_iter().zip(STORED) {
        let keys = shuffled(size);
        let (mut entered, mut walked, mut ran) = (Walk::new(&keys), Walk::new(&keys), Walk::new(&keys));
        let touched = AtomicU64::new(0);
        let touch = |key: &String| {
            let hash = hasher.hash_one(key);
            touched.fetch_add(hash, Ordering::SeqCst);
            hash
        };
        let [entry, walk, run] = measure::contest(
            suite.plan(),
            [
                &mut |loops| {
                    awaits!(runtime, loops, {
                        let pass = gate.enter_key(entered.step()).await.expect("there is a slot");
                        black_box(&pass);
                    })
                },
                &mut |loops| {
                    calls(loops, || {
                        let hash = touch(walked.step());
                        walked.wait_for(hash);
                    })
                },
                &mut |loops| calls(loops, || _ = touch(ran.step())),
            ],
        );
        suite.add(Question::new(case, "ns").against("the walk alone").beside(entry, walk));
        net.push(entry - walk);
        ahead.push(entry - run);
    }
    let last = SIZES.len() - 1;
    let question = Question::new(NET, "ns").against(PEER).goal(Goal::at_most(GOAL));
    suite.add(question.beside(net[last], net[0]));
    suite.add(Question::new(AHEAD, "ns").against(PEER).beside(ahead[last], ahead[0]));
}

fn on_the_spot(suite: &mut Suite) {
    if !suite.wants(ON_THE_SPOT) {
        return;
    }
    let runtime = runtime();
    let gate = gate();
    let (few, many) = (shuffled_numbers(SIZES[0]), shuffled_numbers(SIZES[SIZES.len() - 1]));
    let (mut few, mut many) = (Walk::new(&few), Walk::new(&many));
    suite.duel(
        Question::new(ON_THE_SPOT, "ns").against(PEER).goal(Goal::at_most(GOAL)),
        |loops| written(&runtime, &gate, &mut many, loops),
        |loops| written(&runtime, &gate, &mut few, loops),
    );
}

fn written(runtime: &Runtime, gate: &KeyedGate, walk: &mut Walk<'_, u32>, loops: u64) -> Duration {
    let mut text = *b"tenant-0000000";
    awaits!(runtime, loops, {
        let mut number = *walk.step();
        for digit in text.iter_mut().rev().take(7) {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let key = str::from_utf8(&text).expect("letters and digits are text");
        let pass = gate.enter_key(key).await.expect("there is a slot");
        black_box(&pass);
    })
}

fn gate() -> KeyedGate {
    Gate::builder().max(8).keyed().max_keys(1_000_000).build().expect("the options are right")
}
