//! Callbacks: how large one can be, and how many of one host are under way.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::Value;

use crate::{endpoint::Endpoint, kit::Kit};

on_every_store! {
    #[test]
    async fn f7_a_callback_that_is_sent_again_from_the_dead_letters_holds_no_queue(kit: &Kit) {
        // Seen to fail: with what it held kept in its letter, the queue rested for the hour that its next try waited.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let back = endpoint.url("/later/9/back");
        let enqueue = async |name: &str, headers: &[(&str, &str)]| {
            let path = format!("/v2/enqueue/line/{}", endpoint.url(name));
            assert_eq!(server.ask(Method::POST, &path, headers, "x").await.status, 201);
        };
        enqueue("/ok/first", &[("Upstash-Callback", back.as_str()), ("Upstash-Callback-Retries", "0")]).await;
        let letters = server.until("/v2/dlq", "a letter", |found| found["messages"][0].is_object()).await;
        let again = format!("/v2/dlq/retry/{}", letters["messages"][0]["dlqId"].as_str().unwrap());
        let later = [("Upstash-Retries", "1"), ("Upstash-Retry-Delay", "3600000")];
        let sent = server.ask(Method::POST, &again, &later, "").await.json();
        let why = format!("/v2/messages/{}/explain", sent["messageId"].as_str().unwrap());
        server.until(&why, "it waits for its hour", |why| why.to_string().contains("\"limit\":\"delay\"")).await;
        enqueue("/ok/second", &[]).await;
        endpoint.came_to("/ok/second").await;
    }

    #[test]
    async fn f7_the_callback_of_the_largest_message_with_the_largest_answer_comes(kit: &Kit) {
        // Seen to fail: with a bound on headers a hundred times as large, 140,000 bytes of them were taken.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let (to, back) = (endpoint.url("/large/2000000/x"), endpoint.url("/ok/back"));
        let body = "b".repeat(10 * 1024 * 1024);
        // What is quoted in JSON takes twice as much.
        let header = "\"".repeat(100_000);
        let headers = [("Upstash-Callback", back.as_str()), ("Upstash-Forward-X-Large", header.as_str())];
        let sent = server.ask(Method::POST, &format!("/v2/publish/{to}"), &headers, &body).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        let calls = endpoint.came(2).await;
        let call = calls.iter().find(|call| call.path == "/ok/back").unwrap();
        let told: Value = serde_json::from_slice(&call.body).unwrap();
        assert_eq!(told["sourceBody"].as_str().unwrap().len(), STANDARD.encode(&body).len());
        assert_eq!(STANDARD.decode(told["body"].as_str().unwrap()).unwrap().len(), 1024 * 1024, "as much as is read");
        let refused = [("Upstash-Forward-X-Large", "a".repeat(140_000))];
        let refused: Vec<_> = refused.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let refused = server.ask(Method::POST, &format!("/v2/publish/{to}"), &refused, "x").await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.error().contains("131072"), "{refused:?}");
    }

    #[test]
    async fn f2_callbacks_to_a_slow_endpoint_take_a_part_of_the_slots_and_no_more(kit: &Kit) {
        // Seen to fail: with callbacks in the line of all that has no key, they held all eight slots.
        let (server, endpoint) = (kit.server_with(&["--dev", "--deliveries", "8"]), Endpoint::start().await);
        let back = endpoint.url("/hold/told");
        for _ in 0..12 {
            server.publish(&endpoint.url("/final/x"), &[("Upstash-Failure-Callback", back.as_str())]).await;
        }
        endpoint.holds("told", 2).await;
        // One behind the other, and all of them behind the callbacks.
        for round in 0..20 {
            let id = server.publish(&endpoint.url("/ok/other"), &[]).await;
            server.logged(&id, "DELIVERED").await;
            assert_eq!(endpoint.most("told"), 2, "round {round}");
        }
        assert_eq!(server.get("/v2/flowControl").await.as_array().unwrap().len(), 0, "it is nobody's key");
        endpoint.release(12);
        endpoint.came(12 + 12 + 20).await;
        assert_eq!(endpoint.most("told"), 2);
    }
}
