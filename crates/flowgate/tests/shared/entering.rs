//! Who gets in, in which order, and what is left when they are gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use flowgate::Reason;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::kit::{PATIENCE, on_each_store, poll_once, runtime, stores, until};

// Seen to fail: with the wait made although there is no timeout, it panicked for want of a timer.
#[test]
fn g3_where_nobody_waits_for_a_time_no_timer_is_needed() {
    let [_, store] = stores();
    let (runtime, timeless) = (runtime(), tokio::runtime::Builder::new_current_thread().build().unwrap());
    let gate = runtime.block_on(store.builder().max(1).start()).unwrap();
    drop(timeless.block_on(gate.enter().into_future()).unwrap());
}

// Seen to fail: with only the first holder of a document counted, six were out.
#[test]
fn g1_a_fleet_never_has_more_out_than_max() {
    on_each_store(async |store| {
        let members = store.members(4, |gate| gate.max(3)).await;
        let (out, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let mut work = JoinSet::new();
        for gate in members.iter().cycle().take(16) {
            let (gate, out, most) = (gate.clone(), Arc::clone(&out), Arc::clone(&most));
            work.spawn(async move {
                for _ in 0..25 {
                    let pass = gate.enter_key("k").await.unwrap();
                    most.fetch_max(out.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    out.fetch_sub(1, Ordering::SeqCst);
                    drop(pass);
                }
            });
        }
        work.join_all().await;
        assert!(most.load(Ordering::SeqCst) <= 3, "{most:?} were out");
        let all = members[1].enter_key("k").weight(3).await.unwrap();
        assert_eq!(members[2].try_enter_key("k").await.unwrap_err().in_use, 3);
        drop(all);
        until(&members[0], "k", 0, 0).await;
    });
}

// Seen to fail: with newcomers put at the front of the line, the last came first.
#[test]
fn g2_the_line_of_a_fleet_is_first_in_first_out() {
    on_each_store(async |store| {
        let members = store.members(3, |gate| gate.max(1)).await;
        let first = members[0].enter_key("k").await.unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        for place in 0..9_u32 {
            // In turns, so that each one behind another is of another member.
            let (gate, tell) = (members[place as usize % 3].clone(), tell.clone());
            tokio::spawn(async move {
                let pass = gate.enter_key("k").await.unwrap();
                tell.send((place, pass)).unwrap();
            });
            until(&members[0], "k", 1, place + 1).await;
        }
        // A newcomer cannot overtake.
        assert_eq!(members[1].try_enter_key("k").await.unwrap_err().reason, Reason::Busy);
        drop(first);
        for place in 0..9 {
            let (came, pass) = told.recv().await.unwrap();
            assert_eq!(came, place);
            drop(pass);
        }
    });
}

// Seen to fail: with nothing swapped where an exit and an entry leave the document as it was, the one in line waited for ever.
#[test]
fn g2_one_who_leaves_and_enters_again_does_not_overtake_the_line_of_others() {
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(1)).await;
        let pass = members[0].enter_key("k").await.unwrap();
        let mut other = members[1].enter_key("k").into_future();
        assert!(poll_once(&mut other).await.is_none());
        // Asked by the other: the first one has heard nothing of it.
        until(&members[1], "k", 1, 1).await;
        let mut again = members[0].enter_key("k").into_future();
        drop(pass);
        assert!(poll_once(&mut again).await.is_none());
        drop(other.await.unwrap());
        drop(again.await.unwrap());
    });
}

// Seen to fail: with the line not counted for newcomers, a light one got in before the heavy head.
#[test]
fn g2_a_heavy_head_is_not_starved_by_light_ones_of_others() {
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(3)).await;
        let light = members[0].enter_key("k").await.unwrap();
        let mut heavy = members[1].enter_key("k").weight(3).into_future();
        assert!(poll_once(&mut heavy).await.is_none());
        until(&members[0], "k", 1, 1).await;
        assert_eq!(
            members[0].try_enter_key("k").await.unwrap_err().reason,
            Reason::Busy,
            "two are free, and kept"
        );
        drop(light);
        assert_eq!(heavy.await.unwrap().weight(), 3);
        let refusal = members[0].enter_key("k").weight(4).await.unwrap_err();
        assert_eq!(refusal.reason, Reason::TooHeavy);
    });
}

// Seen to fail: with the line not counted for newcomers, nobody was told that it is full.
#[test]
fn g3_overflow_is_the_fleets() {
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(1).queue(1).timeout(2 * PATIENCE)).await;
        let pass = members[0].enter_key("k").await.unwrap();
        let mut waiting = members[1].enter_key("k").into_future();
        assert!(poll_once(&mut waiting).await.is_none());
        until(&members[0], "k", 1, 1).await;
        let full = members[0].enter_key("k").await.unwrap_err();
        assert_eq!((full.reason, full.in_use, full.waiting, full.max), (Reason::QueueFull, 1, 1, Some(1)));
        assert!(full.is_retryable() && full.to_string().contains(&store.gate), "{full}");
        drop(waiting);
        until(&members[0], "k", 1, 0).await;
        assert!(members[1].try_enter_key("other").await.is_ok(), "another key has a lane of its own");
        drop(pass);
    });
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(1).timeout(Duration::from_millis(100))).await;
        // Not by one that may wait: it would be given up where the store takes longer than that.
        let _pass = members[0].try_enter_key("k").await.unwrap();
        assert_eq!(members[1].enter_key("k").await.unwrap_err().reason, Reason::QueueTimeout);
        until(&members[0], "k", 1, 0).await;
        assert_eq!(members[1].look().refusals.of(Reason::QueueTimeout), 1);
    });
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(1).reject()).await;
        let _pass = members[0].enter_key("k").await.unwrap();
        assert_eq!(members[1].enter_key("k").await.unwrap_err().reason, Reason::Busy);
    });
}

// Seen to fail: with a withdrawal that gives the service no news, the line stayed as long as it was.
#[test]
fn g4_one_that_is_dropped_leaves_the_line_and_hands_on_what_it_was_handed() {
    on_each_store(async |store| {
        let members = store.members(3, |gate| gate.max(1)).await;
        let pass = members[0].enter_key("k").await.unwrap();
        let mut line = Vec::new();
        for (place, gate) in members.iter().enumerate() {
            let mut enter = gate.enter_key("k").into_future();
            assert!(poll_once(&mut enter).await.is_none());
            until(&members[0], "k", 1, place as u32 + 1).await;
            line.push(enter);
        }
        // Dropped in line.
        drop(line.remove(0));
        until(&members[0], "k", 1, 2).await;
        drop(pass);
        until(&members[0], "k", 1, 1).await;
        // Dropped with a slot that it has not looked at yet.
        drop(line.remove(0));
        let pass = line.remove(0).await.unwrap();
        drop(pass);
        until(&members[0], "k", 0, 0).await;
    });
}

// Seen to fail: with a release that does nothing, the slots never came back.
#[test]
fn g5_a_pass_frees_its_slot_once_however_the_work_ends() {
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(2)).await;
        let gate = members[0].clone();
        let ended = tokio::spawn(async move { gate.run("k", async { panic!("on purpose") }).await });
        assert!(ended.await.unwrap_err().is_panic());
        let error: Result<(), &str> = members[1].run("k", async { Err("failed") }).await.unwrap();
        assert_eq!(error, Err("failed"));
        let mut cancelled = Box::pin(members[0].run("k", std::future::pending::<()>()));
        while members[0].look().in_use == 0 {
            assert!(poll_once(&mut cancelled).await.is_none());
            tokio::task::yield_now().await;
        }
        drop(cancelled);
        until(&members[1], "k", 0, 0).await;
        let pass = members[0].enter_key("k").weight(2).await.unwrap();
        assert!(!pass.is_lost() && !pass.is_uncounted());
    });
}

// Seen to fail: with `max_keys` not looked at, the third key got in; with nobody told in `settle` that a lane has come to rest,
// it never did.
#[test]
fn g7_a_process_keeps_so_many_keys_in_mind_and_no_more() {
    on_each_store(async |store| {
        // So long that no renewal comes by, and looks for idle ones.
        let builder = store.builder().lease(Duration::from_secs(600));
        let gate = builder.max(1).keyed().max_keys(2).start().await.unwrap();
        let passes = [gate.enter_key("a").await.unwrap(), gate.enter_key("b").await.unwrap()];
        assert_eq!(gate.enter_key("c").await.unwrap_err().reason, Reason::KeysFull);
        drop(passes);
        let comes_in = async {
            while gate.look().lanes == 2 && gate.enter_key("c").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, comes_in).await.expect("there is room");
        assert!(gate.enter_key("\0 a key of any length ".repeat(100).as_str()).await.is_ok());
    });
}

// Seen to fail: with nobody refused when the time to drain is over, it waited for ever.
#[test]
fn g10_a_closed_gate_drains_and_leaves_the_fleet() {
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(1)).await;
        let pass = members[0].enter_key("k").await.unwrap();
        let gate = members[0].clone();
        let mut late = gate.enter_key("k").into_future();
        assert!(poll_once(&mut late).await.is_none());
        until(&members[1], "k", 1, 1).await;
        let mut closing = Box::pin(gate.close(Duration::ZERO));
        assert!(poll_once(&mut closing).await.is_none());
        assert_eq!(gate.enter_key("k").await.unwrap_err().reason, Reason::Closed);
        assert_eq!(late.await.unwrap_err().reason, Reason::Closed, "the time to drain is over");
        drop(pass);
        closing.await;
        until(&members[1], "k", 0, 0).await;
        assert!(members[1].enter_key("k").await.is_ok());
    });
}

// Seen to fail: with `close` an `async fn`, nothing was closed until somebody awaited it.
#[test]
fn g10_a_gate_is_closed_whether_anybody_awaits_it_or_not() {
    on_each_store(async |store| {
        let [gate, other] = store.members(2, |gate| gate.max(1)).await.try_into().unwrap();
        let pass = gate.enter_key("k").await.unwrap();
        drop(gate.close(Duration::ZERO));
        assert_eq!(gate.try_enter_key("k").await.unwrap_err().reason, Reason::Closed);
        drop(pass);
        assert!(other.enter_key("k").await.is_ok());
    });
}

// Seen to fail: with nobody counted as waiting, the look never said what it should.
#[test]
fn g13_a_look_tells_of_the_fleet_and_of_ones_own_part() {
    on_each_store(async |store| {
        let members = store.members(2, |gate| gate.max(2).rate(10, "1h")).await;
        let _passes = [members[0].enter_key("k").await.unwrap(), members[1].enter_key("k").await.unwrap()];
        let mut waiting = members[1].enter_key("k").into_future();
        assert!(poll_once(&mut waiting).await.is_none());
        until(&members[0], "k", 2, 1).await;
        let fleet = members[0].look_key("k").await.unwrap();
        assert_eq!((fleet.key.as_str(), fleet.rate.unwrap().remaining), ("k", 8));
        // The store has it in line before the one who waits has been told of that.
        while members[1].look().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let (one, other) = (members[0].look(), members[1].look());
        assert_eq!((one.in_use, one.waiting, one.oldest_wait), (1, 0, None));
        assert_eq!((other.in_use, other.waiting, other.oldest_wait.is_some()), (1, 1, true));
        let idle = members[0].look_key("nobody").await.unwrap();
        assert_eq!((idle.in_use, idle.waiting, idle.rate.unwrap().remaining), (0, 0, 10));
    });
}

// Seen to fail: with an empty name let through, the store was asked.
#[test]
fn s2_options_that_cannot_be_are_told_by_name() {
    let wrong = |builder: flowgate::shared::GateBuilder| {
        let error = super::kit::runtime().block_on(builder.start()).unwrap_err();
        error.to_string()
    };
    let gate = || flowgate::shared::Gate::builder("redis://127.0.0.1:1").max(1);
    for (error, option) in [
        (wrong(flowgate::shared::Gate::builder("redis://127.0.0.1:1")), "`max`"),
        (wrong(flowgate::shared::Gate::builder("mysql://x").max(1)), "`store`"),
        (wrong(gate().max(0)), "`max`"),
        (wrong(gate().name("")), "`name`"),
        (wrong(gate().lease(Duration::ZERO)), "`lease`"),
        (wrong(gate().reject().queue(1)), "`queue`"),
    ] {
        assert!(error.starts_with("RC5003") && error.contains(option), "{option}: {error}");
    }
    assert!(wrong(gate()).contains("does not answer"));
}
