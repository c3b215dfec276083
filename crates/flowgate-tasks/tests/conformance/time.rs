//! Delays, moments, retries and what is too late (T6).

use std::time::Duration;

use flowgate_tasks::{
    When,
    store::{DEAD_KEPT, End, KeyChange, State},
};

use crate::kit::{Kit, SECOND, ids, keyed, max, rate, task};

on_every_store! {
    #[test]
    async fn t6_a_delayed_task_joins_the_line_when_it_is_due(kit: &Kit) {
        // Seen to fail: with `start` ignored by `send`, both were claimed at once.
        let late = kit.send(task().delay(10 * SECOND)).await;
        let later = kit.send(task().delay(20 * SECOND)).await;
        let worker = kit.worker().await;
        assert_eq!(worker.claim(9).await.len(), 0);
        assert!(matches!(kit.state(late).await, Some(State::Delayed { .. })));
        let kept = kit.pass(9 * SECOND).await;
        assert_eq!(kept.due, 0);
        assert!(kept.next.is_some_and(|next| next <= SECOND && next > Duration::ZERO), "{kept:?}");
        assert_eq!(worker.claim(9).await.len(), 0);
        let early = kit.send(task()).await;
        assert_eq!(kit.pass(SECOND).await.due, 1);
        assert_eq!(ids(&worker.claim(9).await), [early, late], "at the end of the line");
        assert!(worker.beat().await);
        assert_eq!(kit.pass(10 * SECOND).await.due, 1);
        assert_eq!(ids(&worker.claim(9).await), [later]);
    }

    #[test]
    async fn t6_tasks_fall_due_in_order(kit: &Kit) {
        // Seen to fail: with the due ones taken by their ids, the order was 1, 2, 3.
        let spans = [3, 1, 2];
        let sent = kit.send_all(spans.into_iter().map(|span| task().delay(span * SECOND)).collect()).await;
        assert_eq!(kit.pass(5 * SECOND).await.due, 3);
        assert_eq!(ids(&kit.worker().await.claim(9).await), [sent[1], sent[2], sent[0]]);
    }

    #[test]
    async fn t6_the_first_tasks_of_a_key_are_served_whether_or_not_one_of_them_waits(kit: &Kit) {
        // Seen to fail: with `or_insert(true)` in SQLite's `Sender::store`, the lane that the delayed one had made stayed idle.
        let delayed = keyed("new", max(9)).delay(10 * SECOND);
        let sent = kit.send_all(vec![delayed, keyed("new", max(9)), keyed("new", max(8))]).await;
        let worker = kit.worker().await;
        let claimed = worker.claim(9).await;
        let mut first = ids(&claimed);
        first.sort();
        assert_eq!(first, [sent[1], sent[2]], "other limits are another line");
        worker.done(claimed).await;
        assert_eq!(kit.pass(10 * SECOND).await.due, 1);
        assert_eq!(ids(&worker.claim(9).await), [sent[0]]);
    }

    #[test]
    async fn t6_what_is_too_late_is_not_started_and_says_so(kit: &Kit) {
        // Seen to fail: with `good_until` left out of `take`, the late one was claimed.
        let short = kit.send(task().good_until(When::After(5 * SECOND))).await;
        let long = kit.send(task().good_until(When::After(60 * SECOND))).await;
        let delayed = kit.send(task().delay(8 * SECOND).good_until(When::At(kit.now().after(5 * SECOND)))).await;
        kit.advance(6 * SECOND);
        let worker = kit.worker().await;
        let claimed = worker.claim(9).await;
        assert_eq!(ids(&claimed), [long]);
        assert!(claimed[0].good_until.is_some());
        assert_eq!(kit.upkeep().await.expired, 2);
        for id in [short, delayed] {
            assert_eq!(kit.reason(id).await.as_deref(), Some("expired"));
        }
    }

    #[test]
    async fn t6_a_failed_task_is_tried_again_after_its_wait(kit: &Kit) {
        // Seen to fail: with the wait taken for none, it was claimed again at once.
        let id = kit.send(keyed("key", max(1))).await;
        let worker = kit.worker().await;
        for attempt in 1..=3 {
            let task = worker.claim(1).await.pop().expect("an attempt");
            assert_eq!((task.id, task.attempt), (id, attempt));
            worker.end(task, End::Failed { error: format!("no {attempt}"), retry_after: 4 * SECOND }).await;
            assert_eq!(worker.claim(1).await.len(), 0);
            assert!(worker.beat().await);
            kit.pass(4 * SECOND).await;
        }
        let state = kit.state(id).await;
        assert_eq!(state, Some(State::Dead { reason: "failed".to_owned(), error: "no 3".to_owned() }));
    }

    #[test]
    async fn t5_a_clock_that_is_set_back_keeps_no_lease_alive(kit: &Kit) {
        // Seen to fail: with leases as they were written, nothing came back.
        let id = kit.send(task()).await;
        let (live, gone) = (kit.worker().await, kit.worker().await);
        assert_eq!(gone.claim(1).await.len(), 1);
        kit.set_back(3_600 * SECOND);
        assert_eq!(kit.upkeep().await.recovered, 0, "nobody has been silent for long");
        kit.advance(14 * SECOND);
        assert!(live.beat().await);
        assert_eq!(kit.pass(2 * SECOND).await.recovered, 1);
        assert_eq!(ids(&live.claim(1).await), [id]);
    }

    #[test]
    async fn t5_a_clock_that_is_set_forward_ends_no_lease(kit: &Kit) {
        // Seen to fail: with leases as they were written, the task went to the other while the first ran it.
        let id = kit.send(task()).await;
        let (live, gone) = (kit.worker().await, kit.worker().await);
        assert_eq!(gone.claim(1).await.len(), 1);
        kit.upkeep().await;
        kit.set_forward(3_600 * SECOND);
        assert_eq!(kit.upkeep().await.recovered, 0, "nobody has been silent for long");
        assert_eq!(live.claim(1).await.len(), 0);
        kit.advance(14 * SECOND);
        assert!(live.beat().await);
        assert_eq!(kit.pass(2 * SECOND).await.recovered, 1, "one who is gone is found as ever");
        assert_eq!(ids(&live.claim(1).await), [id]);
    }

    #[test]
    async fn t6_a_clock_that_is_set_back_holds_no_rate_and_no_rest(kit: &Kit) {
        // Seen to fail: without a look at what waits whenever it is earlier than before, neither was claimed.
        let worker = kit.worker().await;
        kit.upkeep().await;
        let sent = kit.send_all((0..2).map(|_| keyed("rate", rate(1, "10s"))).collect()).await;
        let rests = kit.send(keyed("rests", max(1))).await;
        kit.change_key("rests", KeyChange::Rest { by: 1, lasting: 30 * SECOND }).await;
        assert_eq!(ids(&worker.claim(9).await), sent[..1]);
        kit.set_back(3_600 * SECOND);
        kit.upkeep().await;
        let mut claimed = ids(&worker.claim(9).await);
        // Nobody waits longer than two periods.
        for _ in 0..2 {
            assert!(worker.beat().await);
            kit.pass(10 * SECOND).await;
            claimed.extend(ids(&worker.claim(9).await));
        }
        claimed.sort_by_key(|id| id.0);
        assert_eq!(claimed, [sent[1], rests]);
    }

    #[test]
    async fn t6_dead_tasks_are_kept_for_thirty_days(kit: &Kit) {
        // Seen to fail: without `old_dead`, it was there for ever.
        let id = kit.send(task()).await;
        let worker = kit.worker().await;
        let task = worker.claim(1).await.pop().expect("a task");
        worker.end(task, End::Dead { error: "no".to_owned() }).await;
        kit.pass(DEAD_KEPT - SECOND).await;
        assert!(kit.state(id).await.is_some());
        kit.pass(2 * SECOND).await;
        assert_eq!(kit.state(id).await, None);
    }

    #[test]
    async fn a_wait_of_no_time_is_no_wait(kit: &Kit) {
        let id = kit.send(task().delay(Duration::ZERO)).await;
        let worker = kit.worker().await;
        let task = worker.claim(1).await.pop().expect("it is in line");
        worker.end(task, End::Failed { error: String::new(), retry_after: Duration::ZERO }).await;
        assert_eq!(ids(&worker.claim(1).await), [id]);
    }
}
