//! Processes that are never idle.

use std::time::Duration;

use tokio::{task::JoinSet, time::timeout};

use super::kit::{PATIENCE, on_each_store, runtime, stores, until};

// Seen to fail: with wake-ups heard only by a process that has nothing to tell, it waited for as long as the others went on.
#[test]
fn g2_a_process_that_is_busy_elsewhere_hears_that_it_was_handed_a_slot() {
    on_each_store(|store| async move {
        let members = store.members(2, |builder| builder.max(1)).await;
        let [busy, other] = &members[..] else { unreachable!("two were asked for") };
        let held = other.enter_key("k").await.unwrap();
        let mut load = tokio::task::JoinSet::new();
        for number in 0..50 {
            let busy = busy.clone();
            load.spawn(async move {
                // Refused when the test is over and the gate's task is gone: then it ends, for it would not be stopped
                // at an await.
                while busy.enter_key(&format!("other-{number}")).await.is_ok() {}
            });
        }
        let waits = tokio::spawn(busy.enter_key("k").into_future());
        until(other, "k", 1, 1).await;
        drop(held);
        drop(tokio::time::timeout(PATIENCE, waits).await.expect("it is told").unwrap().unwrap());
    });
}

// Seen to fail: with a refusal that comes at once returned without a word to the runtime, nobody else ran.
#[test]
fn g3_one_who_tries_again_and_again_lets_others_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for store in stores() {
        runtime.block_on(async {
            let gate = store.builder().max(1).start().await.unwrap();
            gate.close(Duration::ZERO).await;
            let other = tokio::spawn(async {});
            for _ in 0..10_000 {
                assert!(gate.enter().await.is_err());
            }
            assert!(other.is_finished());
        });
    }
}

// Seen to fail: on PostgreSQL, with new lanes added in the order in which they were asked for, two swaps waited for
// each other, and one was told that the store refused.
#[test]
fn g3_two_that_begin_with_the_same_keys_at_once_do_not_stop_each_other() {
    on_each_store(|store| async move {
        let members = store.members(2, |builder| builder.max(2)).await;
        let [one, other] = &members[..] else { unreachable!("two were asked for") };
        for round in 0..20 {
            let mut entering = tokio::task::JoinSet::new();
            for number in 0..40 {
                // What comes while the first is on its way goes together, in this order.
                entering.spawn(one.enter_key(&format!("{round}-{number}")).into_future());
                entering.spawn(other.enter_key(&format!("{round}-{}", 39 - number)).into_future());
            }
            while let Some(entered) = entering.join_next().await {
                drop(entered.unwrap().unwrap());
            }
        }
    });
}

// Seen to fail: with what there is no room for not remembered as missed, nobody told those whose hand-over was among
// it; on PostgreSQL, with wake-ups waiting for room, the answer behind them did not come, and the newcomer was refused.
#[test]
fn g2_more_wake_ups_than_are_kept_lose_no_hand_over_and_hold_up_nobody() {
    const LANES: usize = 3000;
    for store in stores() {
        println!("on {}", store.url);
        let builder = || store.builder().max(1).lease(Duration::from_secs(90)).keyed();
        // What runs here runs only when it is told to.
        let deaf = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let others = runtime();
        let (gate, other) =
            (deaf.block_on(builder().start()).unwrap(), others.block_on(builder().start()).unwrap());
        let enter = |gate: &flowgate::shared::KeyedGate, runtime: &tokio::runtime::Runtime| {
            let mut entering = JoinSet::new();
            for number in 0..LANES {
                entering.spawn_on(gate.enter_key(&number.to_string()).into_future(), runtime.handle());
            }
            entering
        };
        let passes = others.block_on(enter(&other, &others).join_all());
        let waiting = enter(&gate, &deaf);
        deaf.block_on(async {
            while gate.look().waiting < LANES as u64 {
                tokio::task::yield_now().await;
            }
        });
        drop(passes);
        others.block_on(async {
            for number in 0..LANES {
                until(&other, &number.to_string(), 1, 0).await;
            }
        });
        let newcomer = deaf.spawn(gate.enter_key("another").into_future());
        deaf.block_on(async {
            let handed = timeout(PATIENCE, waiting.join_all()).await.expect("all are told");
            assert!(handed.iter().all(Result::is_ok), "{handed:?}");
            assert!(timeout(PATIENCE, newcomer).await.unwrap().unwrap().is_ok());
        });
    }
}
