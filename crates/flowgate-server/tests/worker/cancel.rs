//! Cancelling what waits and what runs, from another process.

use std::time::Duration;

use flowgate_tasks::{NewTask, SERVER_QUEUE, store::State};

use crate::{
    kit::{Place, on_both},
    record::{self, SCRIPT},
};

#[test]
fn t7_a_cancelled_task_never_starts_or_is_killed_and_its_slot_is_free() {
    // Seen to fail: with the process left to run, the next task has to wait for it.
    let law = |place: &Place| {
        let task = |millis: &str| {
            NewTask::new("cancel", millis.as_bytes().to_vec()).keep_result(Duration::from_secs(600))
        };
        let ids = place.send(vec![task("60000"), task("60000"), task("1")]);
        let told = place.told(&["task", "cancel", &ids[1].to_string()]);
        assert_eq!(told, format!("task {} is cancelled: it will not start\n", ids[1]));
        let _worker = place.worker(&["--processes=1"], SCRIPT);
        place.wait(async {
            let mut look = tokio::time::interval(Duration::from_millis(20));
            while record::read(&place.folder).is_empty() {
                look.tick().await;
            }
        });
        let told = place.told(&["task", "cancel", &ids[0].to_string()]);
        assert_eq!(told, format!("task {} runs: its worker was told to stop it\n", ids[0]));
        let ends = place.ends(&ids);
        for end in &ends[..2] {
            assert!(matches!(end, State::Dead { reason, .. } if reason == "cancelled"), "{end:?}");
        }
        assert!(matches!(ends[2], State::Done { .. }));
        let said = place.run(&["task", "cancel", &ids[2].to_string()]);
        let told = format!(
            "error: no waiting or running task {} in this store; to use another one, set --store or \
            FLOWGATE_STORE\n",
            ids[2]
        );
        assert_eq!((said.code, said.stderr), (Some(1), told));

        let told = place.told(&["task", "retry", &ids[1].to_string()]);
        assert_eq!(told, format!("task {} is back in its line, as new\n", ids[1]));
        let said = place.run(&["task", "retry", &ids[2].to_string()]);
        assert_eq!(
            said.stderr,
            format!(
                "error: no dead task {} in this store; to use another one, set --store or \
            FLOWGATE_STORE\n",
                ids[2]
            )
        );
    };
    on_both("cancel", law);
}

#[test]
fn f7_what_the_server_sends_itself_is_not_cancelled_as_a_task() {
    // Seen to fail: with the queue of the task not looked at, it was cancelled, and its run would have waited for it.
    on_both("own", |place| {
        let ids = place.send(vec![NewTask::new("deliver", Vec::new()).queue(SERVER_QUEUE)]);
        let said = place.run(&["task", "cancel", &ids[0].to_string()]);
        let told = format!(
            "error: task {} is of the server's own queue flowgate:messages; cancel a message with DELETE /v2/messages/{{id}}, \
            a run with `flowgate run cancel`, and delete a schedule with `flowgate schedule delete`\n",
            ids[0]
        );
        assert_eq!((said.code, said.stderr), (Some(1), told));
        assert!(place.told(&["tasks"]).contains("deliver"), "it still waits");
    });
}
