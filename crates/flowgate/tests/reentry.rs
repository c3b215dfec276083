//! G12 re-entry: work that would wait for itself is refused.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use flowgate::{Gate, Limits, Reason, gate::EntryError};
use flowgate_testkit::Driven;

#[test]
fn g12_asking_again_for_a_lane_whose_last_slot_one_holds_is_refused_with_both_places() {
    // Seen to fail: with `waits_for_itself` always saying no, the inner entry hangs.
    let gate = Gate::builder().max(1).build().unwrap();
    let outer = gate.run(async { gate.enter().await.map(drop) });
    let refusal = Driven::new(outer).poll().expect("refused, not hung").unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::Reentrant);
    assert!(!refusal.is_retryable());
    let (held, asked) = refusal.places.unwrap();
    assert_eq!(held.to_string(), format!("{}:{}", file!(), line!() - 5));
    assert_eq!(asked.to_string(), held.to_string());
    assert!(refusal.to_string().contains("re-entrant"), "{refusal}");
    assert_eq!(gate.look().in_use, 0);
}

#[test]
fn g12_it_is_found_through_other_gates_and_in_reject_mode() {
    // Seen to fail: with `Engine::enter` not asking what the work holds when slots lack, the reason is `busy`.
    let outer = Gate::builder().max(1).reject().build().unwrap();
    let inner = Gate::builder().max(5).build().unwrap();
    let other = Gate::builder().max(1).reject().build().unwrap();
    let elsewhere = other.try_enter().unwrap();
    let work = outer.run(inner.run(async {
        assert_eq!(other.try_enter().unwrap_err().reason, Reason::Busy, "it holds nothing of that one");
        outer.try_enter().map(drop)
    }));
    let refusal = Driven::new(work).poll().unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::Reentrant);
    drop(elsewhere);
    assert!(outer.try_enter().is_ok());
    let held = outer.try_enter().unwrap();
    assert_eq!(
        outer.try_enter().unwrap_err().reason,
        Reason::Busy,
        "outside the work nobody knows who holds it"
    );
    drop(held);
}

#[test]
fn g12_one_who_holds_a_slot_may_wait_for_another_that_will_come_free() {
    // Seen to fail: with every second entry of the same work refused, this one is refused too.
    let gate = Gate::builder().max(2).build().unwrap();
    let elsewhere = gate.try_enter().unwrap();
    let mut work = Driven::pending(gate.run(async { gate.enter().await.map(drop) }));
    assert_eq!(gate.look().waiting, 1);
    drop(elsewhere);
    work.ready().unwrap().unwrap();
    assert_eq!(gate.look().in_use, 0);
}

#[test]
fn g12_two_that_hold_all_slots_and_wait_for_each_other_are_told_apart() {
    // Seen to fail: with `waits_for_itself` looking at the asking work alone, both hang.
    let gate = Gate::builder().max(2).build().unwrap();
    let work = |gate: &Gate| {
        let gate = gate.clone();
        async move {
            tokio::task::yield_now().await;
            gate.enter().await.map(drop).map_err(|refusal| refusal.reason)
        }
    };
    let mut first = Driven::new(gate.run(work(&gate)));
    let mut second = Driven::new(gate.run(work(&gate)));
    assert!(first.poll().is_none() && second.poll().is_none());
    assert!(first.poll().is_none(), "the other may still end and free its slot");
    let refused = second.poll().expect("the knot is cut").unwrap();
    assert_eq!(refused, Err(Reason::Reentrant));
    drop(second);
    assert_eq!(first.ready().unwrap(), Ok(()), "the other goes on");
}

#[test]
fn g12_a_knot_tied_by_somebody_elses_exit_is_cut() {
    // Seen to fail: without the check in `pump`, nobody is woken when the last one outside leaves.
    let gate = Gate::builder().max(3).build().unwrap();
    let outside = gate.try_enter().unwrap();
    let mut work = Driven::pending(gate.run(async {
        let answer = gate.enter().weight(3).await;
        answer.map(drop).map_err(|refusal| (refusal.reason, refusal.places.is_some()))
    }));
    drop(outside);
    assert_eq!(
        work.ready().unwrap(),
        Err((Reason::Reentrant, true)),
        "it holds one of three and asked for all"
    );
    gate.set_limits(Limits::builder().max(1).build().unwrap());
    drop(gate.try_enter().unwrap());
}

#[test]
fn g12_when_a_knot_is_cut_one_who_holds_nothing_keeps_its_place() {
    // Seen to fail: with `cut_knot` refusing the head of the row whatever it holds, the head is refused, who could wait.
    let gate = Gate::builder().max(3).build().unwrap();
    let outside = gate.try_enter().unwrap();
    let mut work = Driven::new(gate.run(async {
        tokio::task::yield_now().await;
        gate.enter().await.map(drop).map_err(|refusal| refusal.reason)
    }));
    assert!(work.poll().is_none(), "it holds a slot and has not asked again yet");
    let mut head = Driven::pending(gate.enter().weight(3));
    let woken = work.woken();
    assert!(work.poll().is_none(), "now it has, behind one who needs all three");
    drop(outside);
    assert_eq!((head.woken(), work.woken()), (0, woken + 1));
    assert_eq!(work.ready().unwrap(), Err(Reason::Reentrant));
    drop(head.ready().unwrap());
}

#[test]
fn g12_another_key_is_another_lane() {
    // Seen to fail: with `held` not asking for the lane, work that holds `a` is refused at `b`, where it may wait.
    let gate = Gate::builder().max(1).keyed().max_keys(10).build().unwrap();
    let elsewhere = gate.try_enter_key("b").unwrap();
    let mut work = Driven::pending(gate.run("a", async {
        drop(gate.enter_key("b").await.unwrap());
        gate.enter_key("a").await.map(drop)
    }));
    drop(elsewhere);
    let refusal = work.ready().unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::Reentrant);
    assert_eq!(refusal.key.as_ref().unwrap().as_str(), "a");
    assert_eq!(gate.look().lanes, 0);
}

#[test]
fn g12_a_key_function_too_is_told_its_place_in_the_program() {
    // Seen to fail: with `enter_by` an `async fn`, the place was one in the library.
    let gate = Gate::builder().max(1).keyed().build().unwrap();
    let work = gate.run("a", async { gate.enter_by(|| Ok::<_, String>("a")).await.map(drop) });
    let error = Driven::new(work).poll().expect("refused, not hung").unwrap().unwrap_err();
    let EntryError::Refused(refusal) = error else { panic!("{error}") };
    let (_, asked) = refusal.places.unwrap();
    assert_eq!(asked.to_string(), format!("{}:{}", file!(), line!() - 4));
}

#[test]
fn g12_a_pass_is_known_however_many_more_the_work_holds() {
    // Seen to fail: with `holding::held` looking at the notes in place alone, the outermost is found and the innermost hangs.
    for deep in [1, 15, 16, 17, 40] {
        let gates: Vec<_> = (0..=deep).map(|_| Gate::builder().max(1).build().unwrap()).collect();
        let (last, others) = gates.split_last().unwrap();
        let mut work: Pin<Box<dyn Future<Output = Reason> + '_>> = Box::pin(async {
            for gate in &gates {
                assert_eq!(gate.enter().await.unwrap_err().reason, Reason::Reentrant);
            }
            last.enter().await.unwrap_err().reason
        });
        work = Box::pin(async move { last.run(work).await.unwrap() });
        for gate in others.iter().rev() {
            let inner = work;
            work = Box::pin(async move { gate.run(inner).await.unwrap() });
        }
        assert_eq!(Driven::new(work).poll(), Some(Reason::Reentrant), "{deep} deep");
        let pass = others[0].try_enter().unwrap();
        assert_eq!(others[0].try_enter().unwrap_err().reason, Reason::Busy, "nothing stays noted");
        drop(pass);
    }
}

#[test]
fn g12_one_holder_with_two_entries_in_line_holds_its_slot_once() {
    // Seen to fail: with `stuck` adding up what each in line holds, the second entry is refused, though the slot
    // outside will come.
    let gate = Gate::builder().max(2).build().unwrap();
    let outside = gate.try_enter().unwrap();
    let mut work = Driven::new(gate.run(async {
        let mut first = Box::pin(gate.enter());
        let mut second = Box::pin(gate.enter());
        std::future::poll_fn(|cx| {
            assert!(first.as_mut().poll(cx).is_pending());
            assert!(second.as_mut().poll(cx).is_pending(), "it may wait as well");
            std::task::Poll::Ready(())
        })
        .await;
        drop(first.await.unwrap());
        second.await.map(drop)
    }));
    assert!(work.poll().is_none());
    assert_eq!((gate.look().in_use, gate.look().waiting), (2, 2));
    drop(outside);
    work.ready().unwrap().unwrap();
    assert_eq!((gate.look().in_use, gate.look().waiting), (0, 0));
}

#[test]
fn g12_two_entries_of_one_holder_and_one_of_another_still_make_a_knot() {
    // Seen to fail: with `stuck` looking at the asking work alone, the last one waits for ever.
    let gate = Gate::builder().max(2).build().unwrap();
    let mut fanned = Driven::new(gate.run(async {
        tokio::task::yield_now().await;
        tokio::join!(biased; async { gate.enter().await.map(drop) }, async { gate.enter().await.map(drop) })
    }));
    let mut other = Driven::new(gate.run(async {
        tokio::task::yield_now().await;
        gate.enter().await.map(drop).map_err(|refusal| refusal.reason)
    }));
    assert!(fanned.poll().is_none() && other.poll().is_none());
    assert!(fanned.poll().is_none(), "the other may still end");
    assert_eq!(gate.look().waiting, 2);
    assert_eq!(other.poll().expect("the knot is cut").unwrap(), Err(Reason::Reentrant));
    drop(other);
    assert_eq!(fanned.ready().unwrap(), (Ok(()), Ok(())), "one after the other");
}

#[test]
fn g12_a_holder_that_gave_up_its_place_behind_others_ties_no_knot() {
    // Seen to fail: with `State::cancel_brisk` leaving what it holds in `knots`, who stands in its place later is taken for it,
    // and the other holder is refused.
    let gate = Gate::builder().max(3).build().unwrap();
    let outside = gate.try_enter().unwrap();
    let mut gives_up = Driven::new(gate.run(async {
        tokio::task::yield_now().await;
        let mut entry = Box::pin(gate.enter());
        std::future::poll_fn(|cx| {
            assert!(entry.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(entry);
        tokio::task::yield_now().await;
    }));
    let mut other = Driven::new(gate.run(async {
        tokio::task::yield_now().await;
        gate.enter().await.map(drop).map_err(|refusal| refusal.reason)
    }));
    assert!(gives_up.poll().is_none() && other.poll().is_none(), "each holds a slot");
    let mut head = Driven::pending(gate.enter());
    assert!(gives_up.poll().is_none());
    let mut heavy = Driven::pending(gate.enter().weight(2));
    assert!(other.poll().is_none());
    drop(outside);
    drop(head.ready().unwrap());
    assert_eq!(gate.look().waiting, 2, "the one that gave up will end");
    gives_up.ready().unwrap();
    drop(heavy.ready().unwrap());
    assert_eq!(other.ready().unwrap(), Ok(()));
}

#[test]
fn g12_work_that_moves_between_its_polls_holds_one_pass_all_the_same() {
    // Seen to fail: with the pass of `Pass::scope` known by its place, the second entry is taken for one of a second pass, and
    // refused though the other holder may still end.
    let gate = Gate::builder().max(2).build().unwrap();
    let _elsewhere = gate.try_enter().unwrap();
    let work: Pin<Box<dyn Future<Output = Option<Reason>>>> = Box::pin(async {
        let mut first = pin!(gate.enter());
        poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending().then_some(()))).await?;
        tokio::task::yield_now().await;
        gate.enter().await.err().map(|refusal| refusal.reason)
    });
    let mut here = gate.try_enter().unwrap().scope(work);
    let cx = &mut Context::from_waker(Waker::noop());
    assert_eq!(Pin::new(&mut here).poll(cx), Poll::Pending);
    let mut there = Box::new(here);
    assert_eq!(Pin::new(&mut *there).poll(cx), Poll::Pending);
    assert_eq!(gate.look().waiting, 2);
}
