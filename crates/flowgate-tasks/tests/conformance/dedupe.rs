//! A task sent twice is stored once, within its window.

use flowgate_tasks::store::Sent;

use crate::kit::{Kit, SECOND, task};

on_every_store! {
    #[test]
    async fn a_task_sent_twice_within_its_window_is_stored_once(kit: &Kit) {
        let send = async || {
            let tasks = vec![task().dedupe("same", 10 * SECOND), task().dedupe("same", 10 * SECOND)];
            kit.store.send(tasks).await.expect("tasks are stored")
        };
        let first = send().await;
        assert!(!first[0].is_duplicate);
        assert_eq!(first[1], Sent { id: first[0].id, is_duplicate: true });
        let worker = kit.worker().await;
        let claimed = worker.claim(9).await;
        assert_eq!(claimed.len(), 1);
        worker.done(claimed).await;
        assert!(send().await.iter().all(|sent| *sent == first[1]), "also after it ended");
        kit.pass(11 * SECOND).await;
        assert!(!send().await[0].is_duplicate, "the window is over");
        assert_eq!(worker.claim(9).await.len(), 1);
    }

    #[test]
    async fn a_send_that_fails_holds_no_dedupe_id(kit: &Kit) {
        let wrong = vec![task().dedupe("id", SECOND), task().weight(0)];
        kit.store.send(wrong).await.expect_err("a weight of 0");
        let sent = kit.store.send(vec![task().dedupe("id", SECOND)]).await.expect("a task is stored");
        assert!(!sent[0].is_duplicate);
    }
}
