//! Caps over the cluster and over queues (T1), while they hold and while they change.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use flowgate_tasks::{
    NewTask,
    store::{Again, Turn, Wake, Want},
};

use crate::kit::{Kit, done, ids, keyed, max, task};

on_every_store! {
    #[test]
    async fn t1_a_cluster_cap_holds_over_all_workers(kit: &Kit) {
        // Seen to fail: with the cluster's count not written after a claim, the second worker got 7 and not 3.
        kit.cluster_cap(Some(10)).await;
        kit.send_all((0..20).map(|number| task().queue(["a", "b", "c"][number % 3])).collect()).await;
        let (one, two) = (kit.worker().await, kit.worker().await);
        let first = one.claim(7).await;
        let second = two.claim(7).await;
        assert_eq!((first.len(), second.len()), (7, 3));
        assert_eq!(kit.store.cluster().await.expect("a look"), (10, Some(10)));
        let third = two.swap(done(second), 7).await;
        assert_eq!(third.len(), 3, "what came back and no more");
        one.done(first).await;
        assert_eq!(two.claim(20).await.len(), 7, "what the other gave back");
    }

    #[test]
    async fn t1_a_turn_that_finds_less_than_it_gives_back_counts_what_is_missing(kit: &Kit) {
        // Seen to fail: on PostgreSQL, with nothing taken off the counts by `TAKE_BALANCED`, the audit found one too
        // many of the cluster, the queue and the key; with the lane left as it was, the second task of the key was
        // never claimed.
        kit.cluster_cap(Some(9)).await;
        kit.queue("capped", 1, Some(9)).await;
        let worker = kit.worker().await;
        for _ in 0..2 {
            kit.send(keyed("key", max(1)).queue("capped")).await;
            let claimed = worker.claim(1).await;
            assert_eq!(claimed.len(), 1);
            assert_eq!(worker.swap(done(claimed), 1).await.len(), 0, "nothing else waits");
            kit.check().await;
            assert_eq!((kit.key_in_use("key").await, kit.store.cluster().await.expect("a look").0), (0, 0));
        }
    }

    #[test]
    async fn t1_what_a_lane_leaves_of_a_cap_that_was_reached_is_told_to_others(kit: &Kit) {
        // Seen to fail: on PostgreSQL, with nobody called by one who asks again, nobody was ever woken.
        kit.cluster_cap(Some(2)).await;
        kit.send_all(vec![task().queue("a"), task().queue("a")]).await;
        let (one, two) = (kit.worker_of(&["a"]).await, kit.worker_of(&["b"]).await);
        let mut running = one.claim(9).await;
        kit.send(task().queue("b")).await;
        assert_eq!(two.claim(9).await.len(), 0, "the cap is reached");
        let mut wakes = kit.store.wakes();
        let turned = one.turn(done(vec![running.remove(0)]), 8, false).await;
        assert_eq!(turned.claimed.len(), 0, "nothing is left in the lane");
        while wakes.recv().await.expect("a wake-up") != Wake::Work {}
        assert_eq!(two.claim(9).await.len(), 1);
    }

    #[test]
    async fn t1_a_queue_cap_holds_and_is_the_queues_own(kit: &Kit) {
        // Seen to fail: with the queue's count not written after a claim, the second claim got 2.
        kit.queue("capped", 1, Some(2)).await;
        kit.send_all((0..5).map(|_| task().queue("capped")).collect()).await;
        kit.send_all((0..5).map(|_| task().queue("free")).collect()).await;
        let worker = kit.worker().await;
        let claimed = worker.claim(20).await;
        assert_eq!(claimed.len(), 7);
        assert_eq!(worker.claim(20).await.len(), 0);
        assert_eq!(worker.swap(done(claimed), 20).await.len(), 2);
    }

    #[test]
    async fn t1_a_cap_set_while_tasks_run_counts_them(kit: &Kit) {
        // Seen to fail: with `in_use` set to 0 by `set_cluster_cap`, 2 more started and not 1.
        kit.send_all((0..10).map(|_| task()).collect()).await;
        let worker = kit.worker().await;
        let mut running = worker.claim(5).await;
        // One of the lease has ended: it does not count.
        worker.done(running.split_off(4)).await;
        kit.cluster_cap(Some(5)).await;
        kit.queue("default", 1, Some(6)).await;
        assert_eq!(worker.claim(10).await.len(), 1);
    }

    #[test]
    async fn t1_a_raised_cap_lets_more_start_at_once_and_a_lowered_one_as_they_end(kit: &Kit) {
        // Seen to fail: with `in_use` set to 0 by `set_cluster_cap`, 9 were out under a cap of 6.
        kit.cluster_cap(Some(4)).await;
        kit.queue("default", 1, Some(4)).await;
        kit.send_all((0..30).map(|_| task()).collect()).await;
        let worker = kit.worker().await;
        let mut running = worker.claim(30).await;
        assert_eq!(running.len(), 4);
        kit.cluster_cap(Some(6)).await;
        assert_eq!(worker.claim(30).await.len(), 0, "the queue's own cap still holds");
        kit.queue("default", 1, Some(9)).await;
        running.extend(worker.claim(30).await);
        assert_eq!(running.len(), 6);
        kit.cluster_cap(Some(2)).await;
        let rest = running.split_off(3);
        assert_eq!(worker.swap(done(running), 30).await.len(), 0, "3 of 2 are still out");
        assert_eq!(worker.swap(done(rest), 30).await.len(), 2);
        kit.cluster_cap(None).await;
        assert_eq!(worker.claim(30).await.len(), 7, "up to the queue's cap");
    }

    #[test]
    async fn t1_a_freed_slot_is_taken_in_the_same_turn(kit: &Kit) {
        // Seen to fail: with the cluster's count not given back, the turn gave nothing.
        kit.cluster_cap(Some(2)).await;
        kit.send_all((0..6).map(|_| keyed("key", max(2))).collect()).await;
        let worker = kit.worker().await;
        let mut running = worker.claim(9).await;
        for _ in 0..2 {
            let turned = worker.turn(done(running), 9, false).await;
            assert_eq!(turned.claimed.len(), 2);
            running = turned.claimed;
        }
    }

    #[test]
    async fn t1_all_caps_hold_while_many_workers_turn_at_once(kit: &Kit) {
        // Seen to fail: with `taken` left out of `Counter::room`, 8 were out under a cap of 7.
        kit.cluster_cap(Some(7)).await;
        kit.queue("default", 1, Some(5)).await;
        kit.send_all((0..200).map(|number| keyed(&format!("key-{}", number % 4), max(3))).collect()).await;
        kit.send_all((0..100).map(|_| task().queue("other")).collect()).await;
        let out = Arc::new(AtomicU32::new(0));
        let ended = Arc::new(AtomicU32::new(0));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let (worker, out, ended) = (kit.worker().await, Arc::clone(&out), Arc::clone(&ended));
            workers.spawn(async move {
                while ended.load(Ordering::SeqCst) < 300 {
                    let claimed = worker.claim(4).await;
                    let count = claimed.len() as u32;
                    let now_out = out.fetch_add(count, Ordering::SeqCst) + count;
                    assert!(now_out <= 7, "{now_out} are out");
                    tokio::task::yield_now().await;
                    out.fetch_sub(count, Ordering::SeqCst);
                    worker.done(claimed).await;
                    ended.fetch_add(count, Ordering::SeqCst);
                }
            });
        }
        while let Some(worker) = workers.join_next().await {
            worker.expect("no worker saw a cap exceeded");
        }
    }

    #[test]
    async fn t4_a_turn_takes_no_more_of_a_queue_than_its_batch(kit: &Kit) {
        // Seen to fail: with `quota` not lowered between rounds, 12 were claimed and not 8.
        kit.send_all((0..20).map(|number| task().queue(["a", "b"][number % 2])).collect()).await;
        let worker = kit.worker_of(&["a", "b"]).await;
        let want = Some(Want { slots: 12, per_queue: 4, with_locks: true });
        let turned = kit.store.turn(worker.id, Turn { want, ..Turn::default() }).await.expect("a turn");
        assert_eq!(turned.claimed.len(), 8);
        assert_eq!(turned.again, flowgate_tasks::store::Again::Now, "there is more, and slots are free");
    }

    #[test]
    async fn a_queue_is_seen_as_it_is(kit: &Kit) {
        kit.queue("seen", 7, Some(3)).await;
        kit.send_all((0..5).map(|_| task().queue("seen")).collect()).await;
        kit.send(task().queue("seen").delay(crate::kit::SECOND)).await;
        kit.worker().await.claim(9).await;
        let looks = kit.store.queues().await.expect("a look");
        let look = looks.iter().find(|look| look.limits.name == "seen").expect("the queue");
        assert_eq!((look.limits.priority, look.limits.max), (7, Some(3)));
        assert_eq!((look.in_use, look.waiting, look.delayed, look.is_paused), (3, 2, 1, false));
    }

    #[test]
    async fn t4_a_claim_is_bounded_in_bytes_and_the_next_one_goes_on(kit: &Kit) {
        // Seen to fail: without the bound, one claim took all seven.
        kit.cluster_cap(Some(9)).await;
        for key in [None, Some("large")] {
            let large = || NewTask::new("test", vec![0; 12 << 20]);
            let new = || key.map_or_else(large, |key| large().key(key).limits(max(8)));
            let sent = kit.send_all((0..7).map(|_| new()).collect()).await;
            let worker = kit.worker().await;
            let turned = worker.turn(Vec::new(), 9, true).await;
            assert_eq!(ids(&turned.claimed), sent[..6], "the sixth is the first with which it is too much");
            assert_ne!(turned.again, Again::WhenWoken, "it is told to ask again");
            kit.check().await;
            let rest = worker.swap(done(turned.claimed), 9).await;
            assert_eq!(ids(&rest), sent[6..]);
            worker.done(rest).await;
            kit.check().await;
        }
    }
}
