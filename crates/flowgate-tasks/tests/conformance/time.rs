//! Delays, moments, retries and what is too late (T6).

use std::time::Duration;

use flowgate_tasks::{
    When,
    store::{End, State},
};

use crate::kit::{Kit, SECOND, ids, keyed, max, task};

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
    async fn t6_what_is_too_late_is_not_started_and_says_so(kit: &Kit) {
        // Seen to fail: with `good_until` left out of `take`, the late one was claimed.
        let short = kit.send(task().good_until(When::After(5 * SECOND))).await;
        let long = kit.send(task().good_until(When::After(60 * SECOND))).await;
        let delayed = kit.send(task().delay(8 * SECOND).good_until(When::After(5 * SECOND))).await;
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
    async fn a_wait_of_no_time_is_no_wait(kit: &Kit) {
        let id = kit.send(task().delay(Duration::ZERO)).await;
        let worker = kit.worker().await;
        let task = worker.claim(1).await.pop().expect("it is in line");
        worker.end(task, End::Failed { error: String::new(), retry_after: Duration::ZERO }).await;
        assert_eq!(ids(&worker.claim(1).await), [id]);
    }
}
