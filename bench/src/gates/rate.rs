//! Rate checks beside governor's. Nobody is refused: the rates are higher than any machine spends them.

use std::{hint::black_box, num::NonZeroU32};

use flowgate::{Gate, KeyedGate};
use governor::{Quota, RateLimiter};

use crate::{
    keys::{Walk, shuffled},
    measure::calls,
    report::{Goal, Question},
    suite::Suite,
};

/// A token each 64 ns, the fastest bucket there is, and enough of them for minutes.
const FAST: u32 = 15_625_000;
const PLENTY: u32 = 4_000_000_000;
/// A token each 360 ms, longer than a walk over all keys takes: no bucket is full again before it is spent from next, so
/// that its state stays. And more of them than there are walks.
const SLOW: u32 = 10_000;

const KEYS: u32 = 100_000;
const KEYED_BUCKET: &str = "rate: keyed bucket, 100,000 keys";
const KEYED_WINDOW: &str = "rate: keyed window, 100,000 keys";
const KEYED_RESTING: &str = "rate: keyed bucket that refills at once, 100,000 keys";

pub(crate) fn run(suite: &mut Suite) {
    direct(suite);
    if suite.wants_any(&[KEYED_BUCKET, KEYED_WINDOW, KEYED_RESTING]) {
        keyed(suite);
    }
}

fn direct(suite: &mut Suite) {
    let bucket = Gate::builder().rate(FAST, "1s").burst(PLENTY).build().expect("the options are right");
    let window = Gate::builder().rate(PLENTY, "1h").build().expect("the options are right");
    let governor = RateLimiter::direct(Quota::per_second(positive(FAST)).allow_burst(positive(PLENTY)));
    for (case, gate) in [("rate: bucket", &bucket), ("rate: window", &window)] {
        suite.duel(
            Question::new(case, "ns").against("governor direct").goal(Goal::at_most(1.2)),
            |loops| calls(loops, || black_box(gate).check().expect("there is plenty")),
            |loops| calls(loops, || black_box(&governor).check().expect("there is plenty")),
        );
    }
}

fn keyed(suite: &mut Suite) {
    let keys = shuffled(KEYS);
    let gate = || Gate::builder().keyed().max_keys(KEYS);
    let slow = Quota::per_hour(positive(SLOW));
    let fast = Quota::per_second(positive(FAST)).allow_burst(positive(PLENTY));
    let kept = Goal::at_most(1.0);
    for (case, gate, quota, goal) in [
        (KEYED_BUCKET, gate().rate(SLOW, "1h").burst(SLOW), slow, Some(kept)),
        (KEYED_WINDOW, gate().rate(SLOW, "1h"), slow, Some(kept)),
        (KEYED_RESTING, gate().rate(FAST, "1s").burst(PLENTY), fast, None),
    ] {
        if suite.wants(case) {
            let gate = gate.build().expect("the options are right");
            let question = Question::new(case, "ns").against("governor keyed");
            one_keyed(suite, goal.into_iter().fold(question, Question::goal), &keys, &gate, quota);
        }
    }
}

fn one_keyed(suite: &mut Suite, question: Question, keys: &[String], gate: &KeyedGate, quota: Quota) {
    let governor = RateLimiter::keyed(quota);
    // They come in another order than they are visited in, or each would keep them in the order of the walk and have
    // its processor fetch the next one in advance, as it never could for requests.
    let mut as_they_came: Vec<&String> = keys.iter().collect();
    as_they_came.sort_unstable();
    for key in as_they_came {
        gate.check_key(key).expect("there is plenty");
        governor.check_key(key).expect("there is plenty");
    }
    let (mut ours, mut peer) = (Walk::new(keys), Walk::new(keys));
    suite.duel(
        question,
        |loops| calls(loops, || black_box(gate).check_key(ours.step()).expect("there is plenty")),
        |loops| calls(loops, || black_box(&governor).check_key(peer.step()).expect("there is plenty")),
    );
}

fn positive(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("none of them is zero")
}
