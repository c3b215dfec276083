//! G1, G4, G5, G7, G8 over threads: entries of all weights that are given up at any moment, while an operator changes the
//! limits, pauses, looks and pins. Whoever waits comes in or is told why not, and nothing stays behind.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use flowgate::{Gate, KeyedGate, Limits, Pass, Refusal, gate::Enter};

const KEYS: [&str; 5] = ["", "a", "b", "c", "a key that is too long to be kept in place"];
const ROUNDS: u32 = if cfg!(debug_assertions) { 300 } else { 2_000 };
/// The largest max that the operator sets.
const MOST: u32 = 5;

fn limits(max: u32) -> Limits {
    Limits::builder().max(max).build().unwrap()
}

/// It need not be a good generator.
struct Random(u32);

impl Random {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) % most
    }
}

/// Polls so often at most and gives up then, a while after it was polled last.
async fn within_polls<F: Future>(polls: u32, work: F) -> Option<F::Output> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        // It is polled again without being woken, which is to make no difference.
        cx.waker().wake_by_ref();
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

/// One who comes again and again, with keys and weights by chance, and gives up at times.
async fn come_and_go<'a>(seed: u32, inside: &[AtomicU32], enter: impl Fn(usize) -> Enter<'a>) {
    let mut random = Random(seed);
    for _ in 0..ROUNDS {
        let (key, weight) = (random.below(inside.len() as u32) as usize, 1 + random.below(4) / 3);
        let entry = enter(key).weight(weight);
        let answer: Option<Result<Pass, Refusal>> = match random.below(8) {
            0 => Some(entry.now()),
            1 | 2 => within_polls(random.below(5), entry).await,
            _ => Some(entry.await),
        };
        let Some(Ok(pass)) = answer else { continue };
        let now = inside[key].fetch_add(weight, Ordering::SeqCst) + weight;
        assert!(now <= MOST, "{now} are in at once");
        for _ in 0..random.below(3) {
            tokio::task::yield_now().await;
        }
        inside[key].fetch_sub(weight, Ordering::SeqCst);
        drop(pass);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap()
}

/// Longer than it may take, however busy the machine: so that who is never woken fails.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn g1_g5_g7_g8_a_crowd_at_few_desks_loses_no_slot_and_no_lane() {
    // Seen to fail: with `settle_brisk` keeping the allowance of a lone lane.
    let gate: KeyedGate = Gate::builder().max(3).keyed().max_keys(300).build().unwrap();
    let (inside, is_over) =
        (Arc::new([const { AtomicU32::new(0) }; KEYS.len()]), Arc::new(AtomicBool::new(false)));
    runtime().block_on(async {
        let crowd: Vec<_> = (0..24)
            .map(|seed| {
                let (gate, inside) = (gate.clone(), Arc::clone(&inside));
                tokio::spawn(
                    async move { come_and_go(seed, &*inside, |key| gate.enter_key(KEYS[key])).await },
                )
            })
            .collect();
        let operator = tokio::spawn({
            let (gate, is_over) = (gate.clone(), Arc::clone(&is_over));
            async move {
                let mut random = Random(99);
                while !is_over.load(Ordering::SeqCst) {
                    let key = KEYS[random.below(KEYS.len() as u32) as usize];
                    match random.below(7) {
                        // No lower than the heaviest, so that nobody is too heavy.
                        0 => gate.set_limits(limits(2 + random.below(MOST - 1))).unwrap(),
                        1 => assert!(gate.pin(key, limits(2 + random.below(MOST - 1))).unwrap()),
                        2 => drop(KEYS.map(|key| gate.unpin(key))),
                        3 => gate.pause(),
                        4 => drop((gate.look(), gate.lanes(9))),
                        _ => gate.resume(),
                    }
                    tokio::task::yield_now().await;
                }
                gate.resume();
            }
        });
        for one in crowd {
            tokio::time::timeout(PATIENCE, one).await.expect("it was woken").unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        operator.await.unwrap();
    });
    let _unpinned = KEYS.map(|key| gate.unpin(key));
    let look = gate.look();
    assert_eq!((look.in_use, look.waiting, look.lanes), (0, 0, 0));
    let keys: Vec<String> = (0..301).map(|key| format!("after-{key}")).collect();
    let passes: Vec<Pass> = keys.iter().map_while(|key| gate.try_enter_key(key).ok()).collect();
    assert_eq!(passes.len(), 300, "no allowance was lost or made");
}

#[test]
fn g1_g4_g5_g8_a_crowd_at_one_lane_loses_no_slot() {
    // Seen to fail: with `cancel_brisk` not asking for the fate.
    let gate = Gate::builder().max(3).build().unwrap();
    let (inside, is_over) = (Arc::new([AtomicU32::new(0)]), Arc::new(AtomicBool::new(false)));
    runtime().block_on(async {
        let crowd: Vec<_> = (0..24)
            .map(|seed| {
                let (gate, inside) = (gate.clone(), Arc::clone(&inside));
                tokio::spawn(async move { come_and_go(seed, &*inside, |_| gate.enter()).await })
            })
            .collect();
        let operator = tokio::spawn({
            let (gate, is_over) = (gate.clone(), Arc::clone(&is_over));
            async move {
                let mut random = Random(99);
                while !is_over.load(Ordering::SeqCst) {
                    match random.below(6) {
                        0 => gate.set_limits(limits(2 + random.below(MOST - 1))),
                        1 => gate.pause(),
                        2 => drop(gate.look()),
                        _ => gate.resume(),
                    }
                    tokio::task::yield_now().await;
                }
                gate.resume();
            }
        });
        for one in crowd {
            tokio::time::timeout(PATIENCE, one).await.expect("it was woken").unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        operator.await.unwrap();
    });
    gate.set_limits(limits(MOST));
    let look = gate.look();
    assert_eq!((look.in_use, look.waiting), (0, 0));
    let passes: Vec<Pass> = (0..=MOST).map_while(|_| gate.try_enter().ok()).collect();
    assert_eq!(passes.len(), MOST as usize, "no slot was lost or made");
}
