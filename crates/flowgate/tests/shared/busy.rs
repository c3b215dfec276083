//! Processes that are never idle.

use super::kit::{PATIENCE, on_each_store, until};

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
                loop {
                    drop(busy.enter_key(&format!("other-{number}")).await);
                }
            });
        }
        let waits = tokio::spawn(busy.enter_key("k").into_future());
        until(other, "k", 1, 1).await;
        drop(held);
        drop(tokio::time::timeout(PATIENCE, waits).await.expect("it is told").unwrap().unwrap());
    });
}

// Seen to fail: on PostgreSQL, with new lanes added in the order in which they were asked for, two swaps waited for each other, and one was
// told that the store refused.
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
