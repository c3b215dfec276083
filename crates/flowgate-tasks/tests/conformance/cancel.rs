//! Cancelling, before and while a task runs (F4).

use std::time::Duration;

use flowgate_tasks::{
    TaskId,
    store::{Ahead, Cancelled, End, NewWorker, Turn, Wake, Want},
};

use crate::kit::{Kit, SECOND, ids, keyed, max, task};

on_every_store! {
    #[test]
    async fn f4_cancelled_work_frees_its_place_at_once(kit: &Kit) {
        // Seen to fail: with waiting tasks not looked for in `cancel`, it said `Unknown` and not `Waiting`.
        let sent = kit.send_all((0..3).map(|_| keyed("key", max(1))).collect()).await;
        let delayed = kit.send(task().delay(SECOND)).await;
        for id in [sent[0], delayed] {
            assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Waiting);
            assert_eq!(kit.reason(id).await.as_deref(), Some("cancelled"));
            assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Unknown);
        }
        let worker = kit.worker().await;
        let mut wakes = kit.store.wakes();
        let running = worker.claim(9).await;
        assert_eq!(ids(&running), sent[1..2]);
        assert_eq!(kit.store.cancel(sent[1]).await.expect("a cancellation"), Cancelled::Running);
        while wakes.recv().await.expect("a wake-up") != Wake::Cancel(sent[1]) {}
        for task in running {
            worker.end(task, End::Cancelled).await;
        }
        assert_eq!(kit.reason(sent[1]).await.as_deref(), Some("cancelled"));
        assert_eq!(ids(&worker.claim(9).await), sent[2..], "its slot is free");
        assert_eq!(kit.store.cancel(TaskId(i64::MAX)).await.expect("a cancellation"), Cancelled::Unknown);
    }

    #[test]
    async fn f4_many_are_cancelled_at_once_and_each_is_told_of(kit: &Kit) {
        // Seen to fail: with what runs not looked for, it was `Unknown`; with the answers in the order of the numbers,
        // they were others'.
        let sent = kit.send_all((0..4).map(|_| task()).collect()).await;
        let worker = kit.worker().await;
        let running = worker.claim(1).await;
        let asked = vec![sent[3], TaskId(i64::MAX), sent[0], sent[1]];
        let cancelled = kit.store.cancel_all(asked.clone()).await.expect("cancellations");
        assert_eq!(cancelled, [Cancelled::Waiting, Cancelled::Unknown, Cancelled::Running, Cancelled::Waiting]);
        assert_eq!(kit.store.cancelled(asked).await.expect("a store"), [sent[0]]);
        worker.end(running[0].clone(), End::Cancelled).await;
        assert_eq!(ids(&worker.claim(9).await), sent[2..3]);
        assert_eq!(kit.store.cancel_all(Vec::new()).await.expect("nothing to do"), []);
    }

    #[test]
    async fn f4_a_cancellation_is_not_lost_where_its_task_goes_back(kit: &Kit) {
        // Seen to fail: with no look at what was cancelled where a task goes back to its line, each of them waited to run again.
        let failed = |retry_after| End::Failed { error: "no".to_owned(), retry_after };
        for end in [failed(Duration::ZERO), failed(SECOND), End::Returned] {
            let id = kit.send(task()).await;
            let (worker, other) = (kit.worker().await, kit.worker().await);
            let held = worker.claim(1).await;
            assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Running);
            worker.end(held[0].clone(), end.clone()).await;
            assert_eq!(kit.reason(id).await.as_deref(), Some("cancelled"), "{end:?}");
            kit.pass(2 * SECOND).await;
            assert_eq!(ids(&other.claim(9).await), []);
        }
        // Of a worker that is gone: one that ran, and one that it had at hand.
        kit.queue("soft", 1, Some(1)).await;
        let sent = kit.send_all(vec![task().queue("soft"), task().queue("soft")]).await;
        let (gone, other) = (kit.worker().await, kit.worker().await);
        let want = Some(Want { slots: 1, per_queue: 9, with_locks: true });
        let ahead = Some(Ahead { most: 1, lease: 4 * SECOND });
        let turned = kit.store.turn(gone.id, Turn { want, ahead, ..Turn::default() }).await.expect("a turn");
        assert_eq!((ids(&turned.claimed), ids(&turned.ahead)), (sent[..1].to_vec(), sent[1..].to_vec()));
        for id in sent.iter().copied() {
            assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Running);
        }
        for _ in 0..2 {
            kit.pass(8 * SECOND).await;
            other.beat().await;
        }
        for id in sent {
            assert_eq!(kit.reason(id).await.as_deref(), Some("cancelled"), "{id}");
        }
        assert_eq!(ids(&other.claim(9).await), []);
    }

    #[test]
    async fn f4_a_cancellation_lasts_as_long_as_somebody_holds_the_task(kit: &Kit) {
        // Seen to fail: with what was cancelled forgotten after a minute, both ran again.
        let sent = kit.send_all(vec![task(), task()]).await;
        let (worker, gone) = (kit.worker().await, kit.worker().await);
        let held = worker.claim(1).await;
        assert_eq!((ids(&held), ids(&gone.claim(1).await)), (sent[..1].to_vec(), sent[1..].to_vec()));
        assert_eq!(kit.store.cancel(sent[1]).await.expect("a cancellation"), Cancelled::Running);
        // Nobody is there for an hour: all processes are down.
        kit.advance(3600 * SECOND);
        worker.beat().await;
        assert_eq!(kit.store.cancel(sent[0]).await.expect("a cancellation"), Cancelled::Running);
        assert_eq!(kit.upkeep().await.recovered, 1);
        assert_eq!(kit.reason(sent[1]).await.as_deref(), Some("cancelled"));
        for _ in 0..20 {
            kit.pass(8 * SECOND).await;
            worker.beat().await;
        }
        worker.end(held[0].clone(), End::Failed { error: "no".to_owned(), retry_after: Duration::ZERO }).await;
        assert_eq!(kit.reason(sent[0]).await.as_deref(), Some("cancelled"));
        // And no longer.
        for id in &sent {
            assert!(kit.store.revive(*id).await.expect("revived"));
        }
        kit.pass(61 * SECOND).await;
        assert_eq!(kit.store.cancelled(sent.clone()).await.expect("a store"), []);
        let again = kit.worker().await;
        for task in again.claim(9).await {
            again.end(task, End::Failed { error: "no".to_owned(), retry_after: Duration::ZERO }).await;
        }
        assert_eq!(ids(&again.claim(9).await), sent, "they run again");
    }

    #[test]
    async fn f4_a_cancellation_outlasts_the_lease_of_whoever_has_the_task(kit: &Kit) {
        // Seen to fail: with a minute for all, it ran again when the lease of ten minutes was over.
        let id = kit.send(task()).await;
        let lease = 600 * SECOND;
        let gone = NewWorker { name: "gone".to_owned(), slots: 1, queues: Vec::new(), lease };
        let gone = kit.store.register(gone).await.expect("a worker");
        let want = Some(Want { slots: 1, per_queue: 1, with_locks: false });
        let turned = kit.store.turn(gone, Turn { want, ..Turn::default() }).await.expect("a turn");
        assert_eq!(ids(&turned.claimed), [id]);
        assert_eq!(kit.store.cancel(id).await.expect("a cancellation"), Cancelled::Running);
        kit.pass(300 * SECOND).await;
        assert_eq!(kit.pass(310 * SECOND).await.recovered, 1);
        assert_eq!(kit.reason(id).await.as_deref(), Some("cancelled"));
    }

    #[test]
    async fn a_send_wakes_those_that_wait(kit: &Kit) {
        let mut wakes = kit.store.wakes();
        kit.send(task()).await;
        assert_eq!(wakes.recv().await.expect("a wake-up"), Wake::Work);
    }
}
