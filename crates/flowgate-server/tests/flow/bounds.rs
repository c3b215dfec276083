//! Bounds in bytes, changes at the same time, and what is nobody else's business.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};

use crate::{endpoint::Endpoint, kit::Kit};

on_every_store! {
    #[test]
    async fn s4_a_page_of_the_log_has_a_bound_in_bytes_and_its_cursor_goes_on(kit: &Kit) {
        // Seen to fail: with pages bounded by rows alone, one page had all of them.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let (path, body) = (format!("/v2/publish/{}", endpoint.url("/ok/x")), "x".repeat(3 << 20));
        let mut sent = BTreeSet::new();
        for _ in 0..6 {
            let answer = server.ask(Method::POST, &path, &[("Upstash-Delay", "1h")], &body).await.json();
            sent.insert(answer["messageId"].as_str().unwrap().to_owned());
        }
        let (mut found, mut cursor) = (BTreeSet::new(), String::new());
        loop {
            let answer = server.ask(Method::GET, &format!("/v2/logs?count=1000{cursor}"), &[], "").await;
            assert!(answer.text.len() < 26 << 20, "{} bytes", answer.text.len());
            let page = answer.json();
            assert_eq!(page["events"], page["logs"]);
            let ids = page["events"].as_array().unwrap().iter();
            found.extend(ids.map(|event| event["messageId"].as_str().unwrap().to_owned()));
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, sent);
        let gone = server.ask(Method::DELETE, "/v2/messages?label=nothing", &[], "").await.json();
        assert_eq!(gone["cancelled"], 0);
        assert_eq!(server.ask(Method::DELETE, "/v2/messages?count=6", &[], "").await.json()["cancelled"], 6);
    }

    #[test]
    async fn s4_a_list_in_a_body_names_no_more_than_a_batch_has_entries(kit: &Kit) {
        // Seen to fail: without the bound, each of them was looked for in the store, and none was found.
        let server = kit.server();
        let (delete, post) = (Method::DELETE, Method::POST);
        for (method, path, name, told) in [
            (&delete, "/v2/messages", "messageIds", json!({ "cancelled": 0 })),
            (&delete, "/v2/workflows/runs", "workflowRunIds", json!({ "cancelled": 0 })),
            (&delete, "/v2/dlq", "dlqIds", json!({ "deleted": 0 })),
            (&post, "/v2/dlq/retry", "dlqIds", json!({ "responses": [], "cursor": "" })),
            (&post, "/v2/workflows/dlq/resume", "dlqIds", json!({ "workflowRuns": [], "cursor": "" })),
        ] {
            let ask = async |count: usize| {
                server.ask(method.clone(), path, &[], &json!({ name: vec!["/"; count] }).to_string()).await
            };
            assert_eq!(ask(10_000).await.json(), told, "{path}");
            let refused = ask(10_001).await;
            assert!(refused.status == 413 && refused.error().contains("send up to 10000"), "{path}: {refused:?}");
        }
    }

    #[test]
    async fn f7_a_namespace_is_told_nothing_of_another_by_explain(kit: &Kit) {
        // Seen to fail: without the check of whose a message is, and with the holders of all namespaces told by name.
        let (server, endpoint) = (kit.server_with(&["--dev", "--deliveries", "1"]), Endpoint::start().await);
        let within = async |space: &str, method: Method, path: &str, more: &[(&str, &str)]| {
            let headers: Vec<_> = more.iter().copied().chain([("flowgate-namespace", space)]).collect();
            server.ask(method, path, &headers, "body").await
        };
        let publish = format!("/v2/publish/{}", endpoint.url("/hold/theirs"));
        let theirs = within("b", Method::POST, &publish, &[]).await.json()["messageId"].as_str().unwrap().to_owned();
        endpoint.holds("theirs", 1).await;
        let publish = format!("/v2/publish/{}", endpoint.url("/ok/own"));
        let own = within("a", Method::POST, &publish, &[]).await.json()["messageId"].as_str().unwrap().to_owned();
        for (what, status) in [("queue:flowgate:messages", 403), ("1", 403), (theirs.as_str(), 404)] {
            let answer = within("a", Method::GET, &format!("/v2/explain?what={what}"), &[]).await;
            assert_eq!(answer.status, status, "{what}: {answer:?}");
        }
        let answer = within("a", Method::GET, &format!("/v2/messages/{theirs}/explain"), &[]).await;
        assert_eq!(answer.status, 404, "{answer:?}");
        let told = within("a", Method::GET, &format!("/v2/messages/{own}/explain"), &[]).await.json();
        assert_eq!((&told["holders"], &told["holdersOfOthers"]), (&json!([]), &json!(1)), "{told}");
        assert!(!told.to_string().contains(&theirs), "{told}");
        let told = within("b", Method::GET, &format!("/v2/explain?what={theirs}"), &[]).await.json();
        assert_eq!(told["holders"][0]["messageId"], json!(theirs), "{told}");
        assert!(server.get("/v2/explain?what=queue:flowgate:messages").await["holders"][0].is_object());
        endpoint.release(2);
    }

    #[test]
    async fn f7_what_a_message_hides_its_callback_hides_as_well(kit: &Kit) {
        // Seen to fail: without the mark in the callback's own message, and with the callback's headers told as they are.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let callback = endpoint.url("/ok/callback");
        let headers = [
            ("Upstash-Redact-Fields", "body, header"),
            ("Upstash-Callback", callback.as_str()),
            ("Upstash-Callback-Forward-X-Secret", "s3cret"),
        ];
        let id = server.publish(&endpoint.url("/ok/x"), &headers).await;
        let calls = endpoint.came(2).await;
        let told = calls.iter().find(|call| call.path == "/ok/callback").unwrap();
        assert_eq!(told.header("x-secret"), "s3cret");
        assert!(String::from_utf8_lossy(&told.body).contains("sourceBody"));
        let events = server.get(&format!("/v2/events?url={callback}&state=CREATED")).await;
        let body = events["events"][0]["body"].as_str().unwrap();
        assert!(STANDARD.decode(body).unwrap().starts_with(b"REDACTED:"), "{events}");
        for path in [format!("/v2/events?messageIds={id}"), format!("/v2/messages/{id}")] {
            assert!(!server.get(&path).await.to_string().contains("s3cret"), "{path}");
        }
    }

    #[test]
    async fn f7_no_id_of_a_sender_stands_for_one_of_the_servers_own(kit: &Kit) {
        // Seen to fail: with the id of a letter's retry among those of senders, the retry was taken for the other message.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let id = server.publish(&endpoint.url("/final/x"), &[]).await;
        server.logged(&id, "FAILED").await;
        let letters = server.until("/v2/dlq", "a dead letter", |found| found["messages"][0].is_object()).await;
        let letter = letters["messages"][0]["dlqId"].as_str().unwrap();
        let number = i64::from_str_radix(&letter["dlq_".len() + 8..], 16).unwrap();
        let clash = [("Upstash-Deduplication-Id", format!("dlq/{number}"))];
        let clash: Vec<_> = clash.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let other = server.publish(&endpoint.url("/ok/other"), &clash).await;
        let again = server.post(&format!("/v2/dlq/retry/{letter}")).await;
        assert_ne!(again["messageId"], json!(other));
        endpoint.came(3).await;
    }

    #[test]
    async fn s2_a_zero_byte_is_refused_before_anybody_looks_for_it(kit: &Kit) {
        // Seen to fail: without the check, the first of them was asked for its token instead.
        let server = kit.server();
        for path in [
            "/v2/queues/a%00b",
            "/v2/flowControl/a%00b",
            "/v2/schedules/a%00b",
            "/v2/events?cursor=a%00",
            "/v2/workflows/hooks/u/r%00/e",
        ] {
            let answer = server.ask_plainly(Method::GET, path, &[], "").await;
            assert_eq!(answer.status, 400, "{path}: {answer:?}");
            assert!(answer.error().contains("%00"), "{answer:?}");
        }
        let batch = json!([{ "destination": "http://127.0.0.1:9/", "headers": { "Upstash-Deduplication-Id": "a\0b" } }]);
        assert_eq!(server.ask(Method::POST, "/v2/batch", &[], &batch.to_string()).await.status, 400);
    }

    #[test]
    async fn f6_changes_of_two_at_once_are_both_made(kit: &Kit) {
        // Seen to fail: with what is pinned read, changed and written back, and with a group removed whatever it had become.
        let server = kit.server();
        for round in 0..20 {
            let pin = |what: &str| format!("/v2/flowControl/k{round}/pin?{what}");
            let (max, rate) = (pin("parallelism=3"), pin("rate=5&period=9"));
            tokio::join!(server.post(&max), server.post(&rate));
            let found = server.get(&format!("/v2/flowControl/k{round}")).await;
            let told = ["parallelismMax", "rateMax", "ratePeriod"].map(|name| found[name].as_u64());
            assert_eq!(told, [Some(3), Some(5), Some(9)], "{found}");
            let path = format!("/v2/topics/g{round}/endpoints");
            let body = |name: &str| json!({ "endpoints": [{ "url": format!("http://{name}.test/") }] }).to_string();
            let (one, two) = (body("one"), body("two"));
            assert_eq!(server.ask(Method::POST, &path, &[], &one).await.status, 200);
            let (gone, added) = tokio::join!(
                server.ask(Method::DELETE, &path, &[], &one),
                server.ask(Method::POST, &path, &[], &two)
            );
            assert_eq!((gone.status.as_u16(), added.status.as_u16()), (200, 200));
            let group = server.get(&format!("/v2/topics/g{round}")).await;
            assert_eq!(group["endpoints"], json!([{ "url": "http://two.test/" }]), "round {round}");
        }
        let unpinned = server.ask(Method::POST, "/v2/flowControl/k0/unpin?parallelism=yes", &[], "").await;
        assert_eq!(unpinned.status, 400);
        server.post("/v2/flowControl/k0/unpin?parallelism=true").await;
        let found = server.get("/v2/flowControl/k0").await;
        assert_eq!((&found["isPinnedParallelism"], &found["isPinnedRate"]), (&json!(false), &json!(true)));
    }

    #[test]
    async fn f7_letters_are_sent_again_all_or_none(kit: &Kit) {
        // Seen to fail: with each letter checked when its turn came, the first was sent and then the others refused.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.publish(&endpoint.url("/final/plain"), &[]).await;
        let run = format!("/v2/trigger/{}", endpoint.url("/final/run"));
        server.ask(Method::POST, &run, &[], "{}").await.json();
        let both = |found: &Value| found["messages"].as_array().is_some_and(|list| list.len() == 2);
        let letters = server.until("/v2/dlq", "two letters", both).await;
        let mut names: Vec<&Value> = letters["messages"].as_array().unwrap().iter().collect();
        names.sort_by_key(|letter| letter["workflowRunId"].is_string());
        let names: Vec<&str> = names.iter().map(|letter| letter["dlqId"].as_str().unwrap()).collect();
        let path = format!("/v2/dlq/retry?dlqIds={}&dlqIds={}", names[0], names[1]);
        let refused = server.ask(Method::POST, &path, &[], "").await;
        assert_eq!(refused.status, 400, "{refused:?}");
        // Neither was sent again: that would have made another letter of it.
        for name in names {
            assert_eq!(server.ask(Method::GET, &format!("/v2/dlq/{name}"), &[], "").await.status, 200, "{name}");
        }
    }

    #[test]
    async fn s4_a_url_group_and_what_is_sent_to_it_are_bounded(kit: &Kit) {
        // Seen to fail: with the endpoints of one request counted, and not those of the group.
        let server = kit.server();
        let add = |from: usize| {
            let urls = (from..from + 600).map(|number| json!({ "url": format!("http://h{number}.test/") }));
            json!({ "endpoints": urls.collect::<Vec<_>>() }).to_string()
        };
        assert_eq!(server.ask(Method::POST, "/v2/topics/big/endpoints", &[], &add(0)).await.status, 200);
        let refused = server.ask(Method::POST, "/v2/topics/big/endpoints", &[], &add(600)).await;
        assert_eq!(refused.status, 400);
        assert!(refused.error().contains("1000"), "{refused:?}");
        assert_eq!(server.get("/v2/topics/big").await["endpoints"].as_array().unwrap().len(), 600);
        let refused = server.ask(Method::POST, "/v2/publish/big", &[], &"x".repeat(1 << 20)).await;
        assert_eq!(refused.status, 400);
        assert!(refused.error().contains("256 MiB"), "{refused:?}");
        assert_eq!(server.get("/v2/events").await["events"], json!([]));
    }
}
