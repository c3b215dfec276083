//! Many messages at once: cancelled by what they are of, sent again with other settings, taken in together or not at all.

use std::collections::BTreeSet;

use flowgate_tasks::NewTask;
use http::Method;
use serde_json::{Value, json};

use crate::{
    endpoint::Endpoint,
    kit::{DEADLINE, Kit},
};

on_every_store! {
    #[test]
    async fn f7_what_is_of_one_key_or_queue_is_cancelled_and_nothing_else(kit: &Kit) {
        // Seen to fail: with the line of a queue looked for under the name of a key, none of it was cancelled.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let own = |key: &'static str| [("Upstash-Flow-Control-Key", key), ("Upstash-Flow-Control-Value", "parallelism=1")];
        let (mut meant, mut others) = (BTreeSet::new(), BTreeSet::new());
        meant.insert(server.publish(&endpoint.url("/hold/a"), &own("a")).await);
        endpoint.holds("a", 1).await;
        for number in 0..40 {
            let later = [own("a")[0], own("a")[1], ("Upstash-Delay", "1h")];
            let headers: &[(&str, &str)] = if number % 2 == 0 { &later } else { &own("a") };
            meant.insert(server.publish(&endpoint.url("/ok/a"), headers).await);
            others.insert(server.publish(&endpoint.url("/ok/b"), &[("Upstash-Delay", "1h"), ("Upstash-Label", "a")]).await);
        }
        let cancel = async |query: &str| server.ask(Method::DELETE, &format!("/v2/messages?{query}"), &[], "").await.json();
        assert_eq!(cancel("flowControlKey=a&count=5").await["cancelled"], 5);
        assert_eq!(cancel("flowControlKey=a&label=none").await["cancelled"], 0);
        assert_eq!(cancel("flowControlKey=a&count=500").await["cancelled"], 36);
        assert_eq!(cancel("flowControlKey=a").await["cancelled"], 0);
        for id in &meant {
            server.logged(id, "CANCELED").await;
        }
        server.post("/v2/queues/q/pause").await;
        for _ in 0..3 {
            let sent = server.ask(Method::POST, &format!("/v2/enqueue/q/{}", endpoint.url("/ok/q")), &[], "").await;
            assert_eq!(sent.status, 201, "{sent:?}");
        }
        assert_eq!(cancel("queueName=q").await["cancelled"], 3);
        assert_eq!(cancel("label=a&count=3").await["cancelled"], 3);
        assert_eq!(cancel("label=a,none").await["cancelled"], 37);
        assert_eq!(endpoint.calls().len(), 1, "nothing was delivered but the one that was under way");
    }

    #[test]
    async fn f7_what_is_of_a_key_is_cancelled_behind_somebody_elses_task(kit: &Kit) {
        // Seen to fail: with the list of a key ended by the first that stays in it, three of twelve were cancelled.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.post("/v2/flowControl/shared/pause").await;
        kit.send(NewTask::new("of-a-worker", Vec::new()).key("shared")).await;
        let own = [("Upstash-Flow-Control-Key", "shared"), ("Upstash-Flow-Control-Value", "parallelism=1")];
        for _ in 0..12 {
            server.publish(&endpoint.url("/ok/shared"), &own).await;
        }
        let cancel = async |query: &str| server.ask(Method::DELETE, &format!("/v2/messages?{query}"), &[], "").await.json();
        assert_eq!(cancel("flowControlKey=shared&count=5").await["cancelled"], 5);
        assert_eq!(cancel("flowControlKey=shared").await["cancelled"], 7);
        assert_eq!(cancel("flowControlKey=shared").await["cancelled"], 0);
        server.key("shared", 0, 1).await;
    }

    #[test]
    async fn f7_of_the_messages_that_are_named_those_are_cancelled_that_the_rest_of_the_query_means(kit: &Kit) {
        // Seen to fail: with the rest not looked at where messages are named, the first call cancelled both, and what is no date
        // was accepted.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let mut ids = Vec::new();
        for label in ["staging", "production", "production"] {
            let later = [("Upstash-Label", label), ("Upstash-Delay", "1h")];
            ids.push(server.publish(&endpoint.url("/ok/x"), &later).await);
        }
        let path = |ids: &[String], rest: &str| format!("/v2/messages?messageIds={}&{rest}", ids.join(","));
        let cancel = async |path: &str, body: &str| server.ask(Method::DELETE, path, &[], body).await;
        assert_eq!(cancel(&path(&ids[..2], "label=staging"), "").await.json()["cancelled"], 1);
        for rest in ["fromDate=rubbish", "count=none"] {
            let refused = cancel(&path(&ids[1..], rest), "").await;
            assert_eq!(refused.status, 400, "{rest}: {refused:?}");
        }
        let body = json!({ "messageIds": ids }).to_string();
        assert_eq!(cancel("/v2/messages?label=staging", &body).await.json()["cancelled"], 0);
        assert_eq!(cancel(&path(&ids, "count=1"), "").await.json()["cancelled"], 1);
        assert_eq!(cancel("/v2/messages", &body).await.json()["cancelled"], 1);
    }

    #[test]
    async fn f7_a_letter_is_sent_again_with_the_settings_that_come_with_it(kit: &Kit) {
        // Seen to fail: with four of the settings taken over and the others ignored.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let first = [
            ("Upstash-Label", "old"),
            ("Upstash-Forward-X-One", "1"),
            ("Upstash-Forward-X-Two", "2"),
            ("Content-Type", "text/plain"),
        ];
        let id = server.publish(&endpoint.url("/final/x"), &first).await;
        server.logged(&id, "FAILED").await;
        let name = id.replace("msg_", "dlq_");
        server.until(&format!("/v2/dlq/{name}"), "a letter", |found| found.get("error").is_none()).await;
        let back = endpoint.url("/ok/back");
        let new = [
            ("Upstash-Delay", "1h"),
            ("Upstash-Retries", "7"),
            ("Upstash-Callback", back.as_str()),
            ("Upstash-Forward-X-Two", "two"),
            ("Content-Type", "application/json"),
        ];
        let again = server.ask(Method::POST, &format!("/v2/dlq/retry/{name}"), &new, "").await.json();
        let sent = server.get(&format!("/v2/messages/{}", again["messageId"].as_str().unwrap())).await;
        let header = json!({ "X-One": ["1"], "X-Two": ["two"], "Content-Type": ["text/plain"] });
        assert_eq!((&sent["header"], &sent["label"], &sent["maxRetries"]), (&header, &json!("old"), &json!(7)), "{sent}");
        assert_eq!(sent["callback"], json!(back), "{sent}");
        let wait = sent["notBefore"].as_u64().unwrap() - sent["createdAt"].as_u64().unwrap();
        assert_eq!(wait, 3_600_000, "{sent}");
    }

    #[test]
    async fn s4_a_page_looks_up_no_more_letters_than_the_longest_has(kit: &Kit) {
        // Seen to fail: with what the log has of every letter looked up, one page looked 1,050 of them up, and had no cursor.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let batch = json!(vec![json!({ "destination": endpoint.url("/final/x") }); 1050]).to_string();
        server.ask(Method::POST, "/v2/batch", &[], &batch).await.json();
        let oldest = "/v2/dlq?count=1000";
        let found = server.until(oldest, "a full page", |found| found.get("cursor").is_some()).await;
        let rest = async |found: &Value, query: &str| {
            let cursor = found["cursor"].as_str().unwrap();
            server.get(&format!("/v2/dlq?{query}&cursor={cursor}")).await
        };
        let all = async {
            while rest(&server.get(oldest).await, "count=1000").await["messages"].as_array().unwrap().len() < 50 {
                flowgate_testkit::between_looks().await;
            }
        };
        tokio::time::timeout(DEADLINE, all).await.expect("all of them are dead in time");
        assert_eq!(found["messages"][0]["responseStatus"], 489);
        let none = server.get("/v2/dlq?responseStatus=404").await;
        assert_eq!(none["messages"], json!([]));
        assert_eq!(rest(&none, "responseStatus=404").await, json!({ "messages": [] }));
        let full = server.get("/v2/dlq?responseStatus=489&count=1000").await;
        assert_eq!(full["messages"].as_array().unwrap().len(), 1000);
        let last = rest(&full, "responseStatus=489&count=50").await;
        assert_eq!((last["messages"].as_array().unwrap().len(), last.get("cursor")), (50, None));
    }

    #[test]
    async fn f7_runs_are_meant_by_their_url_its_host_or_its_path(kit: &Kit) {
        // Seen to fail: `host` and `path` were 400; with the beginning of a URL taken for the whole of it, the log had both runs.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for (id, path) in [("wfr_a", "/ok/run"), ("wfr_b", "/ok/runner")] {
            let begin = [("Upstash-Workflow-RunId", id), ("Upstash-Workflow-Init", "true"), ("Upstash-Delay", "1h")];
            server.publish(&endpoint.url(path), &begin).await;
        }
        let (url, with_port) = (endpoint.url("/ok/run"), endpoint.url(""));
        let with_port = with_port.trim_start_matches("http://").trim_end_matches('/');
        for (query, ids) in [
            (format!("workflowUrl={url}"), &["wfr_a"][..]),
            (format!("workflowUrl={url}&workflowUrlExactMatch=false"), &["wfr_b", "wfr_a"]),
            ("host=127.0.0.1".to_owned(), &["wfr_b", "wfr_a"]),
            (format!("host={with_port}&path=/ok/runner"), &["wfr_b"]),
            ("path=/ok/run,/ok/none".to_owned(), &["wfr_a"]),
            ("host=elsewhere.com".to_owned(), &[]),
        ] {
            let found = server.get(&format!("/v2/workflows/events?{query}")).await;
            let found: Vec<&str> = found["runs"].as_array().unwrap().iter().map(|run| run["workflowRunId"].as_str()
                .unwrap()).collect();
            assert_eq!(found, ids, "{query}");
        }
        let cancel = async |query: &str| server.ask(Method::DELETE, &format!("/v2/workflows/runs?{query}"), &[], "").await;
        assert_eq!(cancel("host=elsewhere.com").await.json()["cancelled"], 0);
        assert_eq!(cancel("workflowUrlExactMatch=yes").await.status, 400);
        assert_eq!(cancel(&format!("workflowUrl={}&workflowUrlExactMatch=true",
            endpoint.url("/ok/r"))).await.json()["cancelled"], 0);
        assert_eq!(cancel("host=127.0.0.1&path=/ok/runner").await.json()["cancelled"], 1);
        assert_eq!(cancel(&format!("workflowUrl={}", endpoint.url("/ok/r"))).await.json()["cancelled"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_of_letters_that_are_not_meant_nothing_is_looked_up() {
    // Seen to fail: with the log of every letter read before the filter, it was 503 without a log.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    let id = server.publish(&endpoint.url("/final/x"), &[("Upstash-Label", "dead")]).await;
    server
        .until("/v2/dlq?label=dead", "a letter", |found| found["messages"][0]["messageId"] == json!(id))
        .await;
    kit.alter("ALTER TABLE sheets RENAME TO elsewhere;");
    for query in
        ["label=none", "source=workflow", "messageId=msg_none", "workflowUrl=https://e.com", "path=/final/y"]
    {
        assert_eq!(server.get(&format!("/v2/dlq?{query}")).await, json!({ "messages": [] }), "{query}");
    }
    assert_eq!(server.ask(Method::GET, "/v2/dlq?label=dead", &[], "").await.status, 503);
    kit.alter("ALTER TABLE elsewhere RENAME TO sheets;");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_of_a_batch_whose_steps_cannot_be_stored_nothing_is() {
    // Seen to fail: with what belongs to no run stored first, it was delivered although the batch was answered with 503.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    let begin = json!({ "Upstash-Workflow-RunId": "wfr_new", "Upstash-Workflow-Init": "true" });
    let batch = json!([
        { "destination": endpoint.url("/ok/plain"), "body": "1" },
        { "destination": endpoint.url("/ok/run"), "body": "1", "headers": begin },
    ])
    .to_string();
    kit.alter("CREATE TRIGGER halt BEFORE INSERT ON steps BEGIN SELECT RAISE(ABORT, 'halted'); END;");
    let halted = server.ask(Method::POST, "/v2/batch", &[], &batch).await;
    assert_eq!(halted.status, 503, "{halted:?}");
    kit.alter("DROP TRIGGER halt;");
    assert_eq!(server.get("/v2/events").await["events"], json!([]));
    // Sent again, as a client does, it is taken in once.
    server.ask(Method::POST, "/v2/batch", &[], &batch).await.json();
    let calls = endpoint.came(2).await;
    assert_eq!(calls.len(), 2, "{calls:?}");
}
