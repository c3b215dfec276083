//! Calls that change many things at once: they touch what they name, and all only where nothing is named.

use std::time::Duration;

use flowgate_tasks::NewTask;
use flowgate_testkit::postgres::Postgres;
use http::Method;
use serde_json::{Value, json};

use crate::{
    endpoint::Endpoint,
    kit::{DEADLINE, Kit, Server},
};

const LATER: (&str, &str) = ("Upstash-Delay", "1h");

/// So many dead letters with this path.
async fn letters(server: &Server, endpoint: &Endpoint, path: &str, count: usize) {
    for _ in 0..count {
        server.publish(&endpoint.url(path), &[("Upstash-Label", "dead")]).await;
    }
    let is_there = |found: &Value| found["messages"].as_array().is_some_and(|found| found.len() == count);
    server.until(&format!("/v2/dlq?path={path}"), "dead letters", is_there).await;
}

/// What a call that cannot be meant is answered with.
async fn refused(server: &Server, method: &Method, path: &str) {
    let answer = server.ask(method.clone(), path, &[], "").await;
    assert_eq!(answer.status, 400, "{path}: {answer:?}");
    let name = path.split(['?', '=']).nth(1).unwrap();
    assert!(answer.error().contains(name), "{path}: {answer:?}");
}

on_every_store! {
    #[test]
    async fn f7_an_empty_name_or_list_touches_nothing(kit: &Kit) {
        // Seen to fail: with empty values dropped, `messageIds=` and `{"messageIds":[]}` cancelled every message of the server;
        // with a list read as the fields of an object, `[]` did.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let message = server.publish(&endpoint.url("/ok/a"), &[LATER]).await;
        let begin = [("Upstash-Workflow-RunId", "wfr_live"), ("Upstash-Workflow-Init", "true"), LATER];
        server.publish(&endpoint.url("/ok/run"), &begin).await;
        letters(&server, &endpoint, "/final/x", 2).await;
        let (delete, post) = (Method::DELETE, Method::POST);
        for query in ["messageIds=", "messageIds=,", "messageIds=%20", "messageId=", "label=", "flowControlKey=",
            "url=", "queueName=", "fromDate=", "search", "all=false", "all=", "count="] {
            refused(&server, &delete, &format!("/v2/messages?{query}")).await;
        }
        for query in ["dlqIds=", "dlqIds=,", "dlqId=", "label=", "responseStatus=", "workflowRunId=", "all=false"] {
            for (method, path) in [(&delete, "/v2/dlq"), (&delete, "/v2/workflows/dlq"), (&post, "/v2/dlq/retry"),
                (&post, "/v2/workflows/dlq/restart"), (&post, "/v2/workflows/dlq/resume")] {
                refused(&server, method, &format!("{path}?{query}")).await;
            }
        }
        for query in ["workflowRunIds=", "workflowRunId=", "workflowUrl=", "label=", "all=0"] {
            refused(&server, &delete, &format!("/v2/workflows/runs?{query}")).await;
        }
        // An empty list in a body is what a client sends that has nothing to name.
        for (method, path, name, told) in [
            (&delete, "/v2/messages", "messageIds", json!({ "cancelled": 0 })),
            (&delete, "/v2/workflows/runs", "workflowRunIds", json!({ "cancelled": 0 })),
            (&delete, "/v2/dlq", "dlqIds", json!({ "deleted": 0 })),
            (&delete, "/v2/workflows/dlq", "dlqIds", json!({ "deleted": 0 })),
            (&post, "/v2/dlq/retry", "dlqIds", json!({ "responses": [], "cursor": "" })),
            (&post, "/v2/workflows/dlq/resume", "dlqIds", json!({ "workflowRuns": [], "cursor": "" })),
            (&post, "/v2/workflows/dlq/restart", "dlqIds", json!({ "workflowRuns": [], "cursor": "" })),
        ] {
            let empty = server.ask(method.clone(), path, &[], &json!({ name: [] }).to_string()).await;
            assert_eq!(empty.json(), told, "{path}");
            for body in [json!({ name: null }), json!({ "IDs": ["x"] }), json!([]), json!([["x"]])] {
                let answer = server.ask(method.clone(), path, &[], &body.to_string()).await;
                assert_eq!(answer.status, 400, "{path} {body}: {answer:?}");
            }
        }
        assert_eq!(server.get("/v2/dlq").await["messages"].as_array().unwrap().len(), 2);
        assert_eq!(server.get("/v2/workflows/events").await["runs"][0]["workflowState"], "RUN_STARTED");
        assert_eq!(server.get(&format!("/v2/messages/{message}")).await["messageId"], json!(message));
        // With nothing at all, all are meant.
        assert_eq!(server.ask(delete.clone(), "/v2/dlq", &[], "").await.json(), json!({ "deleted": 2 }));
        assert_eq!(server.ask(delete.clone(), "/v2/workflows/runs", &[], "{}").await.json(), json!({ "cancelled": 1 }));
        let all = server.ask(delete, "/v2/messages", &[], "").await.json();
        // The message of the run that has just ended may still be there to be swept away.
        assert!(matches!(all["cancelled"].as_u64(), Some(1 | 2)), "{all}");
    }

    #[test]
    async fn f7_all_that_are_meant_are_cancelled_unless_a_number_is_said(kit: &Kit) {
        // Seen to fail: with the number that the clients say where their caller says none taken for a bound, 100 of 630
        // were cancelled.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let entry = json!({ "destination": endpoint.url("/ok/a"), "headers": { LATER.0: LATER.1, "Upstash-Label": "many" } });
        let batch = json!(vec![entry; 650]).to_string();
        server.ask(Method::POST, "/v2/batch", &[], &batch).await.json();
        let cancel = async |query: &str| server.ask(Method::DELETE, &format!("/v2/messages{query}"), &[], "").await.json();
        assert_eq!(cancel("?count=20").await["cancelled"], 20);
        assert_eq!(cancel("?label=many&count=99").await["cancelled"], 99);
        assert_eq!(cancel("?label=none&count=100").await["cancelled"], 0);
        assert_eq!(cancel("?count=100").await["cancelled"], 531, "what the clients send for all of them");
        server.ask(Method::POST, "/v2/batch", &[], &batch).await.json();
        assert_eq!(cancel("?label=many").await["cancelled"], 650);
        assert_eq!(cancel("").await["cancelled"], 0);
        let none = server.ask(Method::DELETE, "/v2/messages?count=0", &[], "").await;
        assert!(none.status == 400 && none.error().contains("count is 0"), "{none:?}");
    }

    #[test]
    async fn f7_no_more_runs_are_cancelled_than_are_asked_for(kit: &Kit) {
        // Seen to fail: with 100 taken for all, as it is for messages, 345 were cancelled.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let begin = |number: usize| json!({
            "destination": endpoint.url("/ok/run"),
            "headers": { "Upstash-Workflow-RunId": format!("wfr_{number}"), "Upstash-Workflow-Init": "true", LATER.0: LATER.1 },
        });
        let batch = json!((0..350).map(begin).collect::<Vec<_>>()).to_string();
        server.ask(Method::POST, "/v2/batch", &[], &batch).await.json();
        let cancel = async |query: &str| server.ask(Method::DELETE, &format!("/v2/workflows/runs?{query}"), &[], "").await.json();
        assert_eq!(cancel("count=5").await["cancelled"], 5);
        assert_eq!(cancel("count=100").await["cancelled"], 100);
        assert_eq!(cancel("path=/ok/run&count=100").await["cancelled"], 100);
        assert_eq!(cancel("path=/ok/run").await["cancelled"], 100);
        assert_eq!(cancel("all=true").await["cancelled"], 45);
        assert_eq!(cancel("count=100").await["cancelled"], 0);
    }

    #[test]
    async fn f7_cancelling_a_key_ends_while_others_send_to_it(kit: &Kit) {
        // Seen to fail: with whatever came into the line since cancelled as well, it went on for as long as somebody sent.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.post("/v2/flowControl/busy/pause").await;
        let own = json!({ "Upstash-Flow-Control-Key": "busy", "Upstash-Flow-Control-Value": "parallelism=1" });
        let batch = json!(vec![json!({ "destination": endpoint.url("/ok/a"), "headers": own }); 500]).to_string();
        let send = || async { drop(server.ask(Method::POST, "/v2/batch", &[], &batch).await.json()) };
        send().await;
        let sending = async {
            loop {
                tokio::join!(send(), send(), send(), send());
            }
        };
        let cancelling = tokio::time::timeout(DEADLINE, server.ask(Method::DELETE, "/v2/messages?flowControlKey=busy", &[], ""));
        tokio::select! {
            () = sending => unreachable!("it goes on"),
            cancelled = cancelling => {
                let cancelled = cancelled.expect("it ends").json();
                assert!(cancelled["cancelled"].as_u64() >= Some(500), "{cancelled}");
            }
        }
    }

    #[test]
    async fn f7_all_are_cancelled_whatever_the_clock_of_whoever_took_them_in_said(kit: &Kit) {
        // Seen to fail: with the moments of two servers compared, what came by one whose clock is ahead stayed.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let own = json!({ "key": "a", "parallelism": 1, "period": 1000 });
        for (key, query) in [(None, "label=ahead"), (None, ""), (Some("a"), "flowControlKey=a")] {
            let mut spec = json!({ "labels": ["ahead"] });
            if key.is_some() {
                spec["flow"] = own.clone();
            }
            let head = json!({ "url": endpoint.url("/ok/a"), "created": 9_999_999_999_999_u64, "spec": spec }).to_string();
            let stored = [&u32::try_from(head.len()).unwrap().to_be_bytes()[..], head.as_bytes()].concat();
            let mut task = NewTask::new("deliver", stored).delay(Duration::from_secs(3600));
            if let Some(key) = key {
                task = task.key(key);
            }
            kit.send(task).await;
            let gone = server.ask(Method::DELETE, &format!("/v2/messages?{query}"), &[], "").await;
            assert_eq!(gone.json(), json!({ "cancelled": 1 }), "{query}");
        }
    }

    #[test]
    async fn f7_a_path_may_have_commas(kit: &Kit) {
        // Seen to fail: with each comma the end of a path, `/ok/report,2` cancelled what is at `/ok/report`.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for (what, more) in [("messages", &[][..]), ("workflows/runs", &[("Upstash-Workflow-Init", "true")])] {
            for (path, id) in [("/ok/report", "wfr_a"), ("/ok/report,2", "wfr_b"), ("/ok/c,d,e", "wfr_c"), ("/ok/x", "wfr_d")] {
                let run = more.iter().map(|_| ("Upstash-Workflow-RunId", id));
                let headers: Vec<_> = more.iter().copied().chain(run).chain([LATER]).collect();
                server.publish(&endpoint.url(path), &headers).await;
            }
            for (path, count) in [("/ok/report,2", 1), ("/ok/c,d,/ok/report,2,e", 0), ("/ok/c,d,e,%20/ok/report", 2),
                ("/ok/y&path=/ok/x", 1)] {
                let gone = server.ask(Method::DELETE, &format!("/v2/{what}?path={path}"), &[], "").await;
                assert_eq!(gone.json(), json!({ "cancelled": count }), "{what} {path}");
            }
        }
    }

    #[test]
    async fn f7_cancelling_all_ends_while_others_send(kit: &Kit) {
        // Seen to fail: with whatever stands behind the last page meant as well, it went on for as long as somebody sent.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let batch = json!(vec![json!({ "destination": endpoint.url("/hold/a") }); 100]).to_string();
        let send = || async { drop(server.ask(Method::POST, "/v2/batch", &[], &batch).await.json()) };
        send().await;
        let sending = async {
            loop {
                send().await;
            }
        };
        let cancelling = tokio::time::timeout(DEADLINE, server.ask(Method::DELETE, "/v2/messages", &[], ""));
        tokio::select! {
            () = sending => unreachable!("it goes on"),
            cancelled = cancelling => {
                let cancelled = cancelled.expect("it ends").json();
                assert!(cancelled["cancelled"].as_u64() >= Some(100), "{cancelled}");
            }
        }
    }

    #[test]
    async fn f7_a_filter_means_any_of_its_addresses_and_a_page_is_no_longer_than_it_may_be(kit: &Kit) {
        // Seen to fail: with the last `url` alone, the first one's messages stayed; with a `count` beyond the longest
        // page refused, it was 400.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let urls = ["/ok/a", "/ok/b", "/ok/c"].map(|path| endpoint.url(path));
        for url in &urls {
            server.publish(url, &[LATER]).await;
        }
        let query = format!("/v2/messages?url={}&url={}&count=5000", urls[0], urls[1]);
        assert_eq!(server.ask(Method::DELETE, &query, &[], "").await.json(), json!({ "cancelled": 2 }));
        assert_eq!(server.get("/v2/events?count=5000").await["events"].as_array().map(Vec::is_empty), Some(false));
        let left = server.ask(Method::DELETE, &format!("/v2/messages?url={}", urls[2]), &[], "").await.json();
        assert_eq!(left, json!({ "cancelled": 1 }));
    }

    #[test]
    async fn f7_a_last_page_has_no_cursor_however_full_it_is(kit: &Kit) {
        // Seen to fail: with the cursor of whatever comes behind a full page, meant or not, `count=3` of 3 had one.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        letters(&server, &endpoint, "/final/y", 3).await;
        for _ in 0..3 {
            server.publish(&endpoint.url("/ok/a"), &[LATER, ("Upstash-Label", "mine")]).await;
        }
        letters(&server, &endpoint, "/final/z", 1).await;
        for (path, list, has_more) in [
            ("/v2/events?label=mine&count=3", "events", false),
            ("/v2/events?label=mine&count=2", "events", true),
            ("/v2/dlq?path=/final/z&count=1", "messages", false),
            ("/v2/dlq?path=/final/y&count=3", "messages", false),
            ("/v2/dlq?path=/final/y&count=2", "messages", true),
            ("/v2/dlq?count=4", "messages", false),
        ] {
            let found = server.get(path).await;
            assert!(path.ends_with(&found[list].as_array().unwrap().len().to_string()), "{path}: {found}");
            assert_eq!(found.get("cursor").is_some(), has_more, "{path}: {found}");
        }
        let gone = server.ask(Method::DELETE, "/v2/dlq?path=/final/z&count=1", &[], "").await.json();
        assert_eq!(gone, json!({ "deleted": 1 }));
        let sent = server.post("/v2/dlq/retry?path=/final/y&count=3").await;
        assert_eq!((sent["responses"].as_array().unwrap().len(), &sent["cursor"]), (3, &json!("")), "{sent}");
    }
}

/// What the tests' server says to this.
async fn psql(url: &str, sql: &'static str) -> String {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || Postgres::shared().psql(&url, sql)).await.unwrap().unwrap()
}

/// A transaction that has something, and keeps it until it is told to end.
pub(crate) struct Holder(std::thread::JoinHandle<()>);

impl Holder {
    pub(crate) async fn of(kit: &Kit, lock: &str) -> Self {
        let (url, sql) = (kit.store.clone(), format!("BEGIN; {lock}; SELECT pg_sleep(600)"));
        let holder = std::thread::spawn(move || drop(Postgres::shared().psql(&url, &sql).unwrap_err()));
        let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        tokio::time::timeout(DEADLINE, async { while psql(&kit.store, sleeps).await.trim() != "1" {} })
            .await
            .unwrap();
        Holder(holder)
    }

    pub(crate) async fn end(self, kit: &Kit) {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = \
            current_database()";
        psql(&kit.store, end).await;
        self.0.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_what_was_cancelled_is_told_also_where_another_one_cannot_be() {
    // Seen to fail: with an answer that says nothing of the others, the first was gone, and the log did not know why.
    let kit = Kit::postgres("held_up").await;
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    let first = server.publish(&endpoint.url("/ok/a"), &[LATER]).await;
    server.publish(&endpoint.url("/ok/b"), &[LATER]).await;
    let holder = Holder::of(&kit, "SELECT FROM flowgate.tasks ORDER BY id DESC LIMIT 1 FOR UPDATE").await;
    let answer = server.ask(Method::DELETE, "/v2/messages", &[], "").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    server.logged(&first, "CANCELED").await;
    holder.end(&kit).await;
    let answer = server.ask(Method::DELETE, "/v2/messages", &[], "").await;
    assert_eq!(answer.json(), json!({ "cancelled": 1 }), "the other one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_what_was_stopped_is_told_also_where_another_one_cannot_be() {
    // Seen to fail: with those that were asked to stop forgotten where one was being settled, it was never told as cancelled.
    let kit = Kit::postgres("settling").await;
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    let mut ids = Vec::new();
    for number in 1..=2 {
        ids.push(server.publish(&endpoint.url("/hold/x"), &[]).await);
        endpoint.holds("x", number).await;
    }
    let holder = Holder::of(&kit, "SELECT FROM flowgate.leases ORDER BY id LIMIT 1 FOR UPDATE").await;
    let path = format!("/v2/messages?messageIds={}", ids.join(","));
    let answer = server.ask(Method::DELETE, &path, &[], "").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    holder.end(&kit).await;
    server.logged(&ids[1], "CANCELED").await;
    endpoint.release(1);
    server.logged(&ids[0], "DELIVERED").await;
}
