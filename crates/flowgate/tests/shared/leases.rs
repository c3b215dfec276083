//! A process that stalls, or comes back too late.

use flowgate::Reason;

use super::kit::{LEASE, answered, on_each, runtime, started, until};

// Seen to fail: with a lease that is never over here, the pass was given away and did not know.
#[test]
fn s1_a_late_renewal_revives_nothing() {
    on_each(|store| {
        // A process that stalls: its runtime runs only when it is told to.
        let stalled = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (gate, pass) = stalled.block_on(async {
            let gate = started(|| store.builder().max(1).lease(LEASE).keyed()).await;
            let pass = answered(async || gate.enter_key("k").await).await.unwrap();
            (gate, pass)
        });
        assert!(!pass.is_lost());
        let others = runtime();
        let (other, taken) = others.block_on(async {
            let other = started(|| store.builder().max(1).keyed()).await;
            // Waits until the lease of the stalled one is over.
            let taken = answered(async || other.enter_key("k").await).await.unwrap();
            (other, taken)
        });
        assert!(pass.is_lost(), "it knew before the slot was given away");
        stalled.block_on(pass.lost());
        // The stalled one goes on as a new member: what it had is gone, and giving it back gives nothing.
        drop(pass);
        // It may take a while until it has found its store again.
        let again = async || answered(async || gate.try_enter_key("k").await).await;
        assert_eq!(stalled.block_on(again()).unwrap_err().reason, Reason::Busy);
        others.block_on(until(&other, "k", 1, 0));
        drop(taken);
        others.block_on(until(&other, "k", 0, 0));
        assert!(stalled.block_on(again()).is_ok());
    });
}

// Seen to fail: with those in line still taken for joined after the lease was lost, it took itself for let in, and two were.
#[test]
fn s1_one_who_waits_across_a_lost_lease_joins_the_line_anew() {
    on_each(|store| {
        let stalled = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let others = runtime();
        let (other, pass) = others.block_on(async {
            let other = started(|| store.builder().max(1).keyed()).await;
            let pass = other.enter_key("k").await.unwrap();
            (other, pass)
        });
        let gate = stalled.block_on(started(|| store.builder().max(1).lease(LEASE).keyed()));
        let waiting = stalled.spawn(gate.enter_key("k").into_future());
        stalled.block_on(async {
            while gate.look().waiting == 0 {
                tokio::task::yield_now().await;
            }
        });
        // The line has lost it: one behind it is handed the slot.
        let taken = others.block_on(async {
            let behind = other.enter_key("k").into_future();
            drop(pass);
            behind.await.unwrap()
        });
        // It goes on, and stands in line again.
        let waiting = std::thread::spawn(move || stalled.block_on(waiting).unwrap());
        others.block_on(until(&other, "k", 1, 1));
        drop(taken);
        // It gets its pass; unless its store was late just then, which it is told.
        let answer = waiting.join().unwrap();
        assert!(answer.is_ok() || answer.is_err_and(|refusal| refusal.reason == Reason::Unreachable));
    });
}
