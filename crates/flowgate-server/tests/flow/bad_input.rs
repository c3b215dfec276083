//! Bad input: a clear error that says what to send instead, and nothing stored.

use http::Method;
use serde_json::json;

use crate::kit::Kit;

on_every_store! {
    #[test]
    async fn s2_what_cannot_be_is_told_with_what_can_and_nothing_is_stored(kit: &Kit) {
        // Seen to fail: with any text accepted as a number of retries; with axum's own `Path`, what is no UTF-8 was
        // answered with no JSON; with any text for a cursor of runs, 200 and the first page; with a number beyond those
        // of the store, 200 and an empty last page.
        let server = kit.server();
        let header = |name: &'static str, value: &'static str, says: &'static str| {
            (Method::POST, "/v2/publish/https://example.com", vec![(name, value)], "", says)
        };
        let table = [
            header("Upstash-Delay", "soon", "Upstash-Delay"),
            header("Upstash-Not-Before", "tomorrow", "seconds since 1970"),
            header("Upstash-Retries", "-1", "0 to 900"),
            header("Upstash-Retry-Delay", "alert(1)", "pow sqrt"),
            header("Upstash-Timeout", "0s", "1ms to 24h"),
            header("Upstash-Method", "BREW", "GET, POST"),
            header("Upstash-Callback", "nowhere", "http://"),
            header("Upstash-Label", "a b", "letters"),
            header("Upstash-Redact-Fields", "all", "header[Name]"),
            header("Upstash-Flow-Control-Key", "k", "either rate=X or parallelism=Y"),
            header("Upstash-Flow-Control-Value", "rate=1", "Upstash-Flow-Control-Key"),
            header("Upstash-Callback-Retries", "x", "Upstash-Callback-Retries is"),
            (Method::POST, "/v2/publish/https://example.com", vec![("Upstash-Flow-Control-Key", "k"),
                ("Upstash-Flow-Control-Value", "rate=1,rate=3")], "", "more than once"),
            header("Upstash-Content-Based-Deduplication", "maybe", "true or false"),
            (Method::POST, "/v2/publish/ftp://example.com", vec![], "", "http://"),
            (Method::POST, "/v2/publish/https://", vec![], "", "host"),
            (Method::POST, "/v2/enqueue/a%20b/https://example.com", vec![], "", "letters"),
            (Method::POST, "/v2/enqueue/q/https://example.com", vec![("Upstash-Flow-Control-Key", "k"),
                ("Upstash-Flow-Control-Value", "rate=1")], "", "limits of its own"),
            (Method::POST, "/v2/batch", vec![], "{", "send a list"),
            (Method::POST, "/v2/batch", vec![], r#"[{"destination": "https://e.com", "headers": {"a": []}}]"#, "send a string"),
            (Method::POST, "/v2/queues", vec![], "{}", "queueName"),
            (Method::POST, "/v2/queues", vec![], r#"{"queueName": "q", "parallelism": 0}"#, "1 to"),
            (Method::POST, "/v2/schedules/https://example.com", vec![], "", "Upstash-Cron"),
            (Method::POST, "/v2/schedules/https://example.com", vec![("Upstash-Cron", "61 * * * *")], "", "five fields"),
            (Method::POST, "/v2/topics/g/endpoints", vec![], r#"{"endpoints": [{"url": "x"}]}"#, "http://"),
            (Method::POST, "/v2/flowControl/k/pin", vec![], "", "parallelism=<number>"),
            (Method::POST, "/v2/flowControl/k/pin?parallelism=0", vec![], "", "1 to"),
            (Method::POST, "/v2/flowControl/k/pin?rate=1&period=0", vec![], "", "seconds"),
            (Method::POST, "/v2/flowControl/a%2Fb/pause", vec![], "", "letters"),
            (Method::POST, "/v2/flowControl/%ff/pause", vec![], "", "UTF-8"),
            (Method::GET, "/v2/queues/%c3", vec![], "", "UTF-8"),
            (Method::GET, "/v2/events?state=ASLEEP", vec![], "", "IN_PROGRESS"),
            (Method::GET, "/v2/events?cursor=x", vec![], "", "the previous page"),
            (Method::GET, "/v2/events?cursor=9223372036854775808", vec![], "", "the previous page"),
            (Method::GET, "/v2/dlq?cursor=18446744073709551615", vec![], "", "the previous page"),
            (Method::GET, "/v2/events?count=0", vec![], "", "from 1"),
            (Method::GET, "/v2/events?count=0", vec![], "", "from 1 to 1000"),
            (Method::GET, "/v2/workflows/events?cursor=garbage", vec![], "", "the previous page"),
            (Method::GET, "/v2/dlq?responseStatus=abc", vec![], "", "responseStatus"),
            (Method::DELETE, "/v2/dlq?labeel=x", vec![], "", "labeel"),
            (Method::DELETE, "/v2/messages?labeel=x", vec![], "", "labeel"),
        ];
        for (method, path, headers, body, says) in table {
            let answer = server.ask(method, path, &headers, body).await;
            assert_eq!(answer.status, 400, "{path} {headers:?}: {answer:?}");
            assert!(answer.error().contains(says), "{path} {headers:?}: {answer:?}");
        }
        for path in ["/v2/messages/msg_1", "/v2/dlq/dlq_1", "/v2/queues/none", "/v2/schedules/none",
            "/v2/topics/none", "/v2/flowControl/none", "/v2/nothing"] {
            assert_eq!(server.ask(Method::GET, path, &[], "").await.status, 404, "{path}");
        }
        assert_eq!(server.ask(Method::PUT, "/v2/batch", &[], "").await.status, 405);
        for path in ["/v2/flowControl", "/v2/queues", "/v2/schedules", "/v2/topics"] {
            assert_eq!(server.get(path).await, json!([]), "{path}");
        }
        assert_eq!(server.get("/v2/events").await["events"], json!([]));
    }
}
