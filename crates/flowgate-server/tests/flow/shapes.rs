//! What the OpenAPI document says of answers, held against real ones: of every path, with all that they can have in them.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::{
    endpoint::Endpoint,
    kit::{Kit, Server},
};

/// A document, and the operations of it that were asked.
struct Document {
    text: Value,
    asked: BTreeSet<(String, String)>,
}

impl Document {
    /// Asks for something, and holds the answer against what is said of it. `path` is the one in the document.
    async fn ask(
        &mut self,
        server: &Server,
        method: Method,
        path: &str,
        asked: &str,
        (headers, body): (&[(&str, &str)], &str),
    ) -> Value {
        let verb = method.as_str().to_lowercase();
        let answer = server.ask(method, asked, headers, body).await;
        assert!(answer.status.is_success(), "{asked}: {answer:?}");
        let told = &self.text["paths"][path][&verb]["responses"]["2XX"];
        assert!(told.is_object(), "{verb} {path} is not in the document");
        let schema = &told["content"]["application/json"]["schema"];
        let value = if answer.text.is_empty() { Value::Null } else { answer.json() };
        if !schema.is_null() {
            let wrong = self.wrong(schema, &value, "answer");
            assert_eq!(wrong, None, "{verb} {asked}: {value}");
        } else {
            assert_eq!(answer.text, "", "{verb} {asked}: nothing is told of it");
        }
        self.asked.insert((path.to_owned(), verb));
        value
    }

    /// What of a value is not as the schema says.
    fn wrong(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix("#/components/schemas/").unwrap();
            return self.wrong(&self.text["components"]["schemas"][name], value, at);
        }
        if let Some(forms) = schema["anyOf"].as_array() {
            let each: Vec<_> = forms.iter().map(|form| self.wrong(form, value, at)).collect();
            return if each.contains(&None) { None } else { each.into_iter().flatten().next() };
        }
        let is_right = match schema["type"].as_str() {
            None => return None,
            Some("null") => value.is_null(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64() || value.is_i64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            Some("array") => {
                let Some(items) = value.as_array() else { return Some(format!("{at} is no list")) };
                return items
                    .iter()
                    .enumerate()
                    .find_map(|(index, item)| self.wrong(&schema["items"], item, &format!("{at}[{index}]")));
            }
            Some("object") => {
                let Some(fields) = value.as_object() else { return Some(format!("{at} is no object")) };
                let needed = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let missing = needed.into_iter().find(|name| !fields.contains_key(*name));
                return missing.map(|name| format!("{at} has no {name}")).or_else(|| {
                    fields.iter().find_map(|(name, value)| {
                        let place = format!("{at}.{name}");
                        match (&schema["properties"][name], &schema["additionalProperties"]) {
                            (Value::Null, Value::Bool(false)) => Some(format!("{place} is not told of")),
                            (Value::Null, others) => self.wrong(others, value, &place),
                            (own, _) => self.wrong(own, value, &place),
                        }
                    })
                });
            }
            Some(other) => panic!("{other} is not known here"),
        };
        (!is_right).then(|| format!("{at} is {value}, and not {}", schema["type"]))
    }
}

const NOTHING: (&[(&str, &str)], &str) = (&[], "");

/// A message with everything, that waits.
async fn messages(server: &Server, endpoint: &Endpoint, document: &mut Document) {
    let (to, back) = (endpoint.url("/ok/x"), endpoint.url("/ok/back"));
    let all = [
        ("Upstash-Delay", "1h"),
        ("Upstash-Forward-X-Own", "1"),
        ("Upstash-Label", "one, two"),
        ("Upstash-Callback", back.as_str()),
        ("Upstash-Callback-Forward-X-Back", "1"),
        ("Upstash-Failure-Callback", back.as_str()),
        ("Upstash-Failure-Callback-Forward-X-Back", "1"),
        ("Upstash-Retry-Delay", "1000 * (1 + retried)"),
        ("Upstash-Timeout", "30s"),
        ("Upstash-Flow-Control-Key", "key"),
        ("Upstash-Flow-Control-Value", "parallelism=2, rate=5, period=500ms, smooth=true"),
    ];
    let publish = "/v2/publish/{destination}";
    let sent =
        document.ask(server, Method::POST, publish, &format!("/v2/publish/{to}"), (&all, "body")).await;
    let id = sent["messageId"].as_str().unwrap();
    let group = json!({ "endpoints": [{ "name": "one", "url": to }] }).to_string();
    for method in [Method::POST, Method::PUT] {
        document
            .ask(server, method, "/v2/topics/{name}/endpoints", "/v2/topics/g/endpoints", (&[], &group))
            .await;
    }
    let settings = json!({ "headers": { "Upstash-Delay": "1h" } }).to_string();
    document.ask(server, Method::PATCH, "/v2/topics/{name}", "/v2/topics/g", (&[], &settings)).await;
    let twice = [("Upstash-Deduplication-Id", "once")];
    for _ in 0..2 {
        document.ask(server, Method::POST, publish, "/v2/publish/g", (&twice, "body")).await;
    }
    let batch = json!([{ "destination": to, "body": "b", "headers": { "Upstash-Delay": "1h" } }, { "destination": "g" }]);
    document.ask(server, Method::POST, "/v2/batch", "/v2/batch", (&[], &batch.to_string())).await;
    let queued = format!("/v2/enqueue/q/{to}");
    let late = [("Upstash-Delay", "1h")];
    document.ask(server, Method::POST, "/v2/enqueue/{queue}/{destination}", &queued, (&late, "\u{1}")).await;
    document.ask(server, Method::GET, "/v2/messages/{id}", &format!("/v2/messages/{id}"), NOTHING).await;
    for (path, asked) in [
        ("/v2/messages/{id}/explain", format!("/v2/messages/{id}/explain")),
        ("/v2/explain", format!("/v2/explain?what={id}")),
        ("/v2/flowControl/{key}/explain", "/v2/flowControl/key/explain".to_owned()),
        ("/v2/flowControl/{key}", "/v2/flowControl/key".to_owned()),
        ("/v2/flowControl", "/v2/flowControl".to_owned()),
        ("/v2/globalParallelism", "/v2/globalParallelism".to_owned()),
        ("/v2/topics", "/v2/topics".to_owned()),
        ("/v2/topics/{name}", "/v2/topics/g".to_owned()),
        ("/v2/queues", "/v2/queues".to_owned()),
        ("/v2/queues/{name}", "/v2/queues/q".to_owned()),
        ("/v2/keys", "/v2/keys".to_owned()),
        ("/openapi.json", "/openapi.json".to_owned()),
    ] {
        document.ask(server, Method::GET, path, &asked, NOTHING).await;
    }
    document.ask(server, Method::DELETE, "/v2/messages/{id}", &format!("/v2/messages/{id}"), NOTHING).await;
    // What has ended is told from the log, in the same form.
    let ended = format!("/v2/messages/{id}/explain");
    document.ask(server, Method::GET, "/v2/messages/{id}/explain", &ended, NOTHING).await;
    document.ask(server, Method::DELETE, "/v2/messages", "/v2/messages?label=one", NOTHING).await;
}

/// What changes keys, queues and groups.
async fn changes(server: &Server, document: &mut Document) {
    for (method, path, asked) in [
        (Method::POST, "/v2/flowControl/{key}/pause", "/v2/flowControl/key/pause"),
        (Method::POST, "/v2/flowControl/{key}/resume", "/v2/flowControl/key/resume"),
        (Method::POST, "/v2/flowControl/{key}/pin", "/v2/flowControl/key/pin?parallelism=1&rate=2&period=3"),
        (Method::GET, "/v2/flowControl/{key}", "/v2/flowControl/key"),
        (Method::POST, "/v2/flowControl/{key}/unpin", "/v2/flowControl/key/unpin?parallelism=true"),
        (Method::POST, "/v2/flowControl/{key}/resetRate", "/v2/flowControl/key/resetRate"),
        (Method::POST, "/v2/flowControl/{key}/mode", "/v2/flowControl/key/mode?mode=latest"),
        (Method::POST, "/v2/queues/{name}/pause", "/v2/queues/q/pause"),
        (Method::POST, "/v2/queues/{name}/resume", "/v2/queues/q/resume"),
        (Method::DELETE, "/v2/queues/{name}", "/v2/queues/q"),
        (Method::POST, "/v2/keys/rotate", "/v2/keys/rotate"),
    ] {
        document.ask(server, method, path, asked, NOTHING).await;
    }
    let queue = json!({ "queueName": "r", "parallelism": 3 }).to_string();
    document.ask(server, Method::POST, "/v2/queues", "/v2/queues", (&[], &queue)).await;
    let gone = json!({ "endpoints": [{ "name": "none" }] }).to_string();
    document
        .ask(server, Method::DELETE, "/v2/topics/{name}/endpoints", "/v2/topics/g/endpoints", (&[], &gone))
        .await;
    document.ask(server, Method::DELETE, "/v2/topics/{name}", "/v2/topics/g", NOTHING).await;
}

/// Dead letters, the log, and schedules.
async fn letters(server: &Server, endpoint: &Endpoint, document: &mut Document) {
    let dead = async |path: &str| {
        let id =
            server.publish(&endpoint.url(path), &[("Upstash-Callback", &endpoint.url("/ok/back"))]).await;
        server.logged(&id, "FAILED").await;
        let name = id.replace("msg_", "dlq_");
        server.until(&format!("/v2/dlq/{name}"), "a letter", |found| found.get("error").is_none()).await;
        name
    };
    let [first, second, third] = [dead("/final/1").await, dead("/final/2").await, dead("/final/3").await];
    let later = server.publish(&endpoint.url("/later/1/x"), &[("Upstash-Retry-Delay", "3600000")]).await;
    server.logged(&later, "RETRY").await;
    let (one, retry) = (format!("/v2/dlq/{first}"), format!("/v2/dlq/retry/{first}"));
    document.ask(server, Method::GET, "/v2/dlq", "/v2/dlq?count=2", NOTHING).await;
    document.ask(server, Method::GET, "/v2/dlq/{id}", &one, NOTHING).await;
    document.ask(server, Method::POST, "/v2/dlq/retry/{id}", &retry, NOTHING).await;
    document
        .ask(server, Method::POST, "/v2/dlq/retry", &format!("/v2/dlq/retry?dlqIds={second}"), NOTHING)
        .await;
    document.ask(server, Method::DELETE, "/v2/dlq/{id}", &format!("/v2/dlq/{third}"), NOTHING).await;
    document.ask(server, Method::DELETE, "/v2/dlq", "/v2/dlq", NOTHING).await;
    for path in ["/v2/events", "/v2/logs"] {
        document.ask(server, Method::GET, path, &format!("{path}?count=1000"), NOTHING).await;
        document.ask(server, Method::GET, path, &format!("{path}?count=1"), NOTHING).await;
    }
    let make = format!("/v2/schedules/{}", endpoint.url("/ok/tick"));
    let own = [
        ("Upstash-Cron", "* * * * *"),
        ("Upstash-Delay", "10s"),
        ("Upstash-Label", "one"),
        ("Upstash-Schedule-Id", "s"),
        ("Upstash-Flow-Control-Key", "tick"),
        ("Upstash-Flow-Control-Value", "rate=1"),
    ];
    document.ask(server, Method::POST, "/v2/schedules/{destination}", &make, (&own, "body")).await;
    for (method, path, asked) in [
        (Method::GET, "/v2/schedules/{id}", "/v2/schedules/s"),
        (Method::GET, "/v2/schedules", "/v2/schedules"),
        (Method::PATCH, "/v2/schedules/{id}/pause", "/v2/schedules/s/pause"),
        (Method::POST, "/v2/schedules/{id}/pause", "/v2/schedules/s/pause"),
        (Method::PATCH, "/v2/schedules/{id}/resume", "/v2/schedules/s/resume"),
        (Method::POST, "/v2/schedules/{id}/resume", "/v2/schedules/s/resume"),
        (Method::DELETE, "/v2/schedules/{id}", "/v2/schedules/s"),
    ] {
        document.ask(server, method, path, asked, NOTHING).await;
    }
}

/// Runs: live ones, failed ones, and what waits for an event.
async fn runs(server: &Server, endpoint: &Endpoint, document: &mut Document) {
    let trigger = |path: &str| format!("/v2/trigger/{}", endpoint.url(path));
    let failing = [("Upstash-Label", "run"), ("Upstash-Forward-X-Own", "1")];
    let first = document
        .ask(server, Method::POST, "/v2/trigger/{workflow}", &trigger("/final/run"), (&failing, "{}"))
        .await;
    let many = json!([{ "destination": endpoint.url("/final/run") }]).to_string();
    document.ask(server, Method::POST, "/v2/batch/trigger", "/v2/batch/trigger", (&[], &many)).await;
    let is_told = |found: &Value| {
        let letters = found["messages"].as_array().map_or(&[][..], Vec::as_slice);
        letters.len() == 2
            && letters.iter().all(|letter| letter["failureCallbackInfo"]["responseStatus"].is_u64())
    };
    let letters = server.until("/v2/dlq?source=workflow", "two letters, told", is_told).await;
    document.ask(server, Method::GET, "/v2/dlq", "/v2/dlq?source=workflow", NOTHING).await;
    let of = |index: usize| letters["messages"][index]["dlqId"].as_str().unwrap().to_owned();
    let (callback, again) =
        ("/v2/workflows/dlq/callback/{id}", format!("/v2/workflows/dlq/callback/{}", of(0)));
    document.ask(server, Method::POST, callback, &again, NOTHING).await;

    let url = endpoint.url("/ok/run");
    let run =
        [("Upstash-Workflow-RunId", "wfr_live"), ("Upstash-Workflow-Init", "true"), ("Upstash-Delay", "1h")];
    document
        .ask(server, Method::POST, "/v2/publish/{destination}", &format!("/v2/publish/{url}"), (&run, "1"))
        .await;
    let wait = |step: u32| {
        json!({ "url": url, "timeout": "1h", "timeoutHeaders": { "Upstash-Label": ["a"] }, "step": { "stepId": step,
            "stepType": "Wait" } })
            .to_string()
    };
    let of_run = [("Upstash-Workflow-RunId", "wfr_live")];
    document.ask(server, Method::POST, "/v2/wait/{event}", "/v2/wait/ev", (&of_run, &wait(1))).await;
    let page = document
        .ask(server, Method::GET, "/v2/workflows/events", "/v2/workflows/events?count=100", NOTHING)
        .await;
    let ids: Vec<&Value> = page["runs"].as_array().unwrap().iter().map(|run| &run["workflowRunId"]).collect();
    assert!(ids.contains(&&first["workflowRunId"]), "{page}");
    let hook = "/v2/workflows/hooks/u/wfr_live/hooked";
    document
        .ask(
            server,
            Method::POST,
            "/v2/workflows/hooks/{user}/{run}/{event}",
            &hook.replace("/u/", "/defaultUser/"),
            NOTHING,
        )
        .await;
    for (method, path, asked) in [
        (Method::GET, "/v2/waiters/{event}", "/v2/waiters/ev".to_owned()),
        (Method::POST, "/v2/notify/{run}/{event}", "/v2/notify/wfr_live/later".to_owned()),
        (Method::POST, "/v2/notify/{event}", "/v2/notify/ev".to_owned()),
        (Method::GET, "/v2/workflows/runs/{id}", "/v2/workflows/runs/wfr_live".to_owned()),
        (Method::GET, "/v2/workflows/logs", "/v2/workflows/logs?count=1".to_owned()),
        (Method::DELETE, "/v2/workflows/runs/{id}", "/v2/workflows/runs/wfr_live?cancel=true".to_owned()),
        (Method::DELETE, "/v2/workflows/runs", "/v2/workflows/runs?workflowRunIds=wfr_none".to_owned()),
        (Method::POST, "/v2/workflows/dlq/resume", format!("/v2/workflows/dlq/resume?dlqIds={}", of(0))),
        (Method::POST, "/v2/workflows/dlq/restart", format!("/v2/workflows/dlq/restart?dlqIds={}", of(1))),
        (Method::DELETE, "/v2/workflows/dlq", "/v2/workflows/dlq".to_owned()),
    ] {
        document.ask(server, method, path, &asked, NOTHING).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_the_document_tells_of_every_field_of_every_answer() {
    // Seen to fail: with `label` left out of what is told of a message.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    let mut document = Document { text: server.get("/openapi.json").await, asked: BTreeSet::new() };
    messages(&server, &endpoint, &mut document).await;
    letters(&server, &endpoint, &mut document).await;
    changes(&server, &mut document).await;
    runs(&server, &endpoint, &mut document).await;
    let schedule = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": false });
    assert!(document.wrong(&schedule, &json!({ "b": 1 }), "x").is_some(), "the check can fail");
    let told = document.text["paths"].as_object().unwrap().iter();
    let told = told.flat_map(|(path, verbs)| {
        verbs.as_object().unwrap().keys().map(move |verb| (path.clone(), verb.clone()))
    });
    let unasked: Vec<_> = told.filter(|operation| !document.asked.contains(operation)).collect();
    assert_eq!(unasked, [], "all of them are asked here");
}
