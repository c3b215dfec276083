//! `kill -9`: nothing accepted is lost, nothing stays stuck, and the bound holds.

use std::{collections::BTreeSet, process::Command};

use flowgate_tasks::TaskId;
use http::Method;
use serde_json::json;

use crate::{endpoint::Endpoint, kit::Kit};

on_every_store! {
    #[test]
    async fn s1_a_killed_server_loses_nothing_and_its_slots_come_back(kit: &Kit) {
        // Seen to fail: with one attempt allowed in all, what was in flight at the kill was dead afterwards.
        let endpoint = Endpoint::start().await;
        let server = kit.server();
        let mut sent = BTreeSet::new();
        for _ in 0..20 {
            let limits = [
                ("Upstash-Flow-Control-Key", "k"),
                ("Upstash-Flow-Control-Value", "parallelism=4"),
                ("Upstash-Retries", "0"),
            ];
            sent.insert(server.publish(&endpoint.url("/hold/k"), &limits).await);
        }
        endpoint.holds("k", 4).await;
        server.kill_nine();
        endpoint.holds("k", 0).await;
        kit.end_leases();
        let server = kit.server();
        server.key("k", 4, 16).await;
        endpoint.release(40);
        server.key("k", 0, 0).await;
        let came: BTreeSet<String> =
            endpoint.calls().iter().map(|call| call.header("upstash-message-id").to_owned()).collect();
        assert_eq!(came, sent);
        assert_eq!(endpoint.most("k"), 4);
    }

    #[test]
    async fn f4_a_message_of_a_killed_server_that_is_cancelled_is_gone_and_told(kit: &Kit) {
        // Seen to fail: with nobody to look after it, it was never told as cancelled.
        // The lease is longer than it takes to start a server and to ask it: the message is cancelled before it is anybody's.
        let (endpoint, lease) = (Endpoint::start().await, ["--dev", "--lease", "30s"]);
        let server = kit.server_with(&lease);
        let id = server.publish(&endpoint.url("/hold/x"), &[]).await;
        endpoint.holds("x", 1).await;
        server.kill_nine();
        let server = kit.server_with(&lease);
        let path = format!("/v2/messages/{id}");
        let cancelled = server.ask(Method::DELETE, &path, &[], "").await;
        assert_eq!(cancelled.json(), json!({ "cancelled": 1 }));
        kit.end_lease_of_the_first();
        server.logged(&id, "CANCELED").await;
        assert_eq!(server.ask(Method::GET, &path, &[], "").await.status, 404);
        assert_eq!(server.get("/v2/dlq").await["messages"], json!([]));
        assert_eq!(endpoint.calls().len(), 1, "it was not delivered again");
    }

    #[test]
    async fn f4_a_message_that_was_stopped_is_gone_before_it_is_buried(kit: &Kit) {
        // Seen to fail: with whatever the store has told, it was there.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let id = server.publish(&endpoint.url("/ok/x"), &[("Upstash-Delay", "1h")]).await;
        let path = format!("/v2/messages/{id}");
        let why = server.get(&format!("{path}/explain")).await;
        let task = why["subject"].as_str().and_then(|task| task.strip_prefix("task ")?.parse().ok()).unwrap();
        assert_eq!(server.ask(Method::GET, &path, &[], "").await.status, 200);
        // As it is left where a server ended in between.
        kit.open().await.cancel(TaskId(task)).await.unwrap();
        assert_eq!(server.ask(Method::GET, &path, &[], "").await.status, 404);
    }

    #[test]
    async fn s1_a_worker_beside_a_server_that_is_gone_takes_none_of_its_messages(kit: &Kit) {
        // Seen to fail: with a worker of all queues serving the server's own too, it answered the message, which was never sent.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.publish(&endpoint.url("/ok/late"), &[("Upstash-Delay", "4s")]).await;
        server.kill_nine();
        let flowgate = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
            command.args(arguments).env("FLOWGATE_STORE", &kit.store);
            command
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/worker.py");
        let mut worker = flowgate(&["worker", "--processes=1", "--", "python3", script]).spawn().unwrap();
        // It is due after the message, and done before a server comes back.
        let done = flowgate(&["send", "--wait", "--delay=6s", "resize", r#"{"image": 7}"#]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(endpoint.calls().len(), 0);
        for arguments in [&["send", "--queue=flowgate:messages", "x"][..], &["worker", "--queue=flowgate:messages",
            "--", "cat"]] {
            let refused = flowgate(arguments).output().unwrap();
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("`flowgate serve`"), "{refused:?}");
        }
        let _server = kit.server();
        endpoint.came(1).await;
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_letter_that_is_sent_again_is_sent_once_for_as_long_as_it_is_there() {
    // Seen to fail: with its id remembered for ten minutes, as others are, the letter was sent with each call.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    server.publish(&endpoint.url("/fail/1/x"), &[("Upstash-Retries", "0")]).await;
    let found = server.until("/v2/dlq", "a letter", |found| found["messages"][0].is_object()).await;
    let path = format!("/v2/dlq/retry/{}", found["messages"][0]["dlqId"].as_str().unwrap());
    // As a crash leaves it: sent, and still there.
    kit.alter("CREATE TRIGGER halt BEFORE DELETE ON dead BEGIN SELECT RAISE(ABORT, 'halted'); END;");
    assert_eq!(server.ask(Method::POST, &path, &[], "").await.status, 503);
    endpoint.came(2).await;
    // Twenty minutes later, and then twenty-nine days.
    for minutes in [20_u64, 29 * 24 * 60] {
        let later = minutes * 60 * 1_000_000_000;
        kit.alter(&format!("UPDATE dedupes SET until = until - {later};"));
        assert_eq!(server.ask(Method::POST, &path, &[], "").await.status, 503);
    }
    kit.alter("DROP TRIGGER halt;");
    let sent = server.ask(Method::POST, &path, &[], "").await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let behind = server.publish(&endpoint.url("/ok/behind"), &[]).await;
    server.logged(&behind, "DELIVERED").await;
    assert_eq!(endpoint.calls().iter().filter(|call| call.path == "/fail/1/x").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_nothing_is_cancelled_that_nobody_would_look_after() {
    // Seen to fail: with the chore stored behind the cancel, the message was stopped, and never told as cancelled.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    let id = server.publish(&endpoint.url("/hold/x"), &[]).await;
    endpoint.holds("x", 1).await;
    let path = format!("/v2/messages/{id}");
    kit.alter("CREATE TRIGGER halt BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, 'halted'); END;");
    assert_eq!(server.ask(Method::DELETE, &path, &[], "").await.status, 503);
    kit.alter("DROP TRIGGER halt;");
    assert_eq!(server.ask(Method::DELETE, &path, &[], "").await.json(), json!({ "cancelled": 1 }));
    server.logged(&id, "CANCELED").await;
    assert_eq!(endpoint.calls().len(), 1);
}
