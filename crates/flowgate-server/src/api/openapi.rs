//! The API as an OpenAPI document, made from one table and served at `/openapi.json`.

use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use super::schema;

/// A path, a method, what it does, the names of its query, and what it takes and gives.
struct Route {
    path: &'static str,
    method: &'static str,
    about: &'static str,
    query: &'static [&'static str],
    body: Body,
    gives: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Body {
    None,
    Any,
    Json,
}

/// What a list of the log can be narrowed down by.
const LOG_FILTERS: &[&str] = &[
    "cursor",
    "messageIds",
    "messageId",
    "state",
    "count",
    "url",
    "topicName",
    "scheduleId",
    "queueName",
    "label",
    "flowControlKey",
    "callerIp",
    "fromDate",
    "toDate",
    "host",
    "path",
];
const NONE: &[&str] = &[];

const fn route(
    method: &'static str,
    path: &'static str,
    about: &'static str,
    query: &'static [&'static str],
    body: Body,
    gives: &'static str,
) -> Route {
    Route { path, method, about, query, body, gives }
}

const ROUTES: [Route; 45] = [
    route(
        "post",
        "/v2/publish/{destination}",
        "Publish a message to a URL or a URL group. The destination follows the path as it is, its query included; how the message is delivered is said by headers.",
        NONE,
        Body::Any,
        "published",
    ),
    route(
        "post",
        "/v2/enqueue/{queue}/{destination}",
        "Publish a message through a FIFO queue.",
        NONE,
        Body::Any,
        "published",
    ),
    route("post", "/v2/batch", "Publish many messages: all of them, or none.", NONE, Body::Json, "list"),
    route(
        "get",
        "/v2/messages/{id}",
        "A message that waits, is under way, or was delivered a short while ago.",
        NONE,
        Body::None,
        "object",
    ),
    route("delete", "/v2/messages/{id}", "Cancel a message.", NONE, Body::None, "object"),
    route(
        "delete",
        "/v2/messages",
        "Cancel many messages, by id or by filter.",
        &[
            "messageIds",
            "count",
            "url",
            "topicName",
            "scheduleId",
            "queueName",
            "label",
            "flowControlKey",
            "callerIp",
            "fromDate",
            "toDate",
            "host",
            "path",
        ],
        Body::None,
        "object",
    ),
    route("get", "/v2/flowControl", "All flow-control keys.", &["search"], Body::None, "list"),
    route(
        "get",
        "/v2/flowControl/{key}",
        "One flow-control key: in flight, waiting, limits, window.",
        NONE,
        Body::None,
        "object",
    ),
    route("post", "/v2/flowControl/{key}/pause", "Nothing of the key starts.", NONE, Body::None, "nothing"),
    route("post", "/v2/flowControl/{key}/resume", "The key goes on.", NONE, Body::None, "nothing"),
    route(
        "post",
        "/v2/flowControl/{key}/pin",
        "Limits that overrule those of the messages.",
        &["parallelism", "rate", "period", "smooth"],
        Body::None,
        "nothing",
    ),
    route(
        "post",
        "/v2/flowControl/{key}/unpin",
        "The limits of the messages hold again.",
        &["parallelism", "rate"],
        Body::None,
        "nothing",
    ),
    route("post", "/v2/flowControl/{key}/resetRate", "A new window begins now.", NONE, Body::None, "nothing"),
    route(
        "post",
        "/v2/flowControl/{key}/mode",
        "Whose limits govern what waits: the newest sent (latest), each message's own (own), or as for all keys (default).",
        &["mode"],
        Body::None,
        "nothing",
    ),
    route(
        "get",
        "/v2/globalParallelism",
        "How many deliveries are under way in all.",
        NONE,
        Body::None,
        "object",
    ),
    route("get", "/v2/queues", "All queues.", NONE, Body::None, "list"),
    route("post", "/v2/queues", "Make a queue, or change it.", NONE, Body::Json, "nothing"),
    route("get", "/v2/queues/{name}", "One queue.", NONE, Body::None, "object"),
    route("delete", "/v2/queues/{name}", "Remove a queue.", NONE, Body::None, "nothing"),
    route("post", "/v2/queues/{name}/pause", "Nothing of the queue starts.", NONE, Body::None, "nothing"),
    route("post", "/v2/queues/{name}/resume", "The queue goes on.", NONE, Body::None, "nothing"),
    route(
        "get",
        "/v2/events",
        "What happened to messages, the newest first.",
        LOG_FILTERS,
        Body::None,
        "object",
    ),
    route("get", "/v2/logs", "The same under its newer name.", LOG_FILTERS, Body::None, "object"),
    route(
        "get",
        "/v2/dlq",
        "Dead letters, the newest first.",
        &[
            "cursor",
            "dlqIds",
            "messageId",
            "responseStatus",
            "count",
            "url",
            "topicName",
            "scheduleId",
            "queueName",
            "label",
            "flowControlKey",
            "callerIp",
            "fromDate",
            "toDate",
            "host",
            "path",
        ],
        Body::None,
        "object",
    ),
    route(
        "delete",
        "/v2/dlq",
        "Delete many dead letters, by id or by filter.",
        &[
            "cursor",
            "dlqIds",
            "messageId",
            "responseStatus",
            "count",
            "url",
            "topicName",
            "scheduleId",
            "queueName",
            "label",
            "flowControlKey",
            "callerIp",
            "fromDate",
            "toDate",
            "host",
            "path",
        ],
        Body::None,
        "object",
    ),
    route("get", "/v2/dlq/{id}", "One dead letter.", NONE, Body::None, "object"),
    route("delete", "/v2/dlq/{id}", "Delete a dead letter.", NONE, Body::None, "nothing"),
    route(
        "post",
        "/v2/dlq/retry",
        "Send many dead letters again, by id or by filter.",
        &[
            "cursor",
            "dlqIds",
            "messageId",
            "responseStatus",
            "count",
            "url",
            "topicName",
            "scheduleId",
            "queueName",
            "label",
            "flowControlKey",
            "callerIp",
            "fromDate",
            "toDate",
            "host",
            "path",
        ],
        Body::None,
        "object",
    ),
    route(
        "post",
        "/v2/dlq/retry/{id}",
        "Send a dead letter again; headers overrule its settings.",
        NONE,
        Body::None,
        "object",
    ),
    route("get", "/v2/schedules", "All schedules.", NONE, Body::None, "list"),
    route(
        "post",
        "/v2/schedules/{destination}",
        "Make a schedule, or replace it. Needs the header Upstash-Cron.",
        NONE,
        Body::Any,
        "object",
    ),
    route("get", "/v2/schedules/{id}", "One schedule.", NONE, Body::None, "object"),
    route("delete", "/v2/schedules/{id}", "Remove a schedule.", NONE, Body::None, "nothing"),
    route(
        "patch",
        "/v2/schedules/{id}/pause",
        "The schedule is not due any more.",
        NONE,
        Body::None,
        "nothing",
    ),
    route("patch", "/v2/schedules/{id}/resume", "The schedule goes on.", NONE, Body::None, "nothing"),
    route("get", "/v2/topics", "All URL groups.", NONE, Body::None, "list"),
    route("get", "/v2/topics/{name}", "One URL group.", NONE, Body::None, "object"),
    route("delete", "/v2/topics/{name}", "Remove a URL group.", NONE, Body::None, "nothing"),
    route(
        "patch",
        "/v2/topics/{name}",
        "Settings of every message to the group.",
        NONE,
        Body::Json,
        "nothing",
    ),
    route(
        "post",
        "/v2/topics/{name}/endpoints",
        "Add endpoints to a URL group, which is made if it is not there.",
        NONE,
        Body::Json,
        "nothing",
    ),
    route("put", "/v2/topics/{name}/endpoints", "The same.", NONE, Body::Json, "nothing"),
    route(
        "delete",
        "/v2/topics/{name}/endpoints",
        "Remove endpoints from a URL group.",
        NONE,
        Body::Json,
        "nothing",
    ),
    route("get", "/v2/keys", "The signing keys.", NONE, Body::None, "object"),
    route(
        "post",
        "/v2/keys/rotate",
        "The next signing key becomes the current one.",
        NONE,
        Body::None,
        "object",
    ),
    route("get", "/openapi.json", "This document.", NONE, Body::None, "object"),
];

/// `GET /openapi.json`
pub(super) async fn read() -> impl IntoResponse {
    axum::Json(document())
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method] = route.operation();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Flowgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable HTTP delivery under limits: the QStash v2 API.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["error"],
                    "properties": { "error": { "type": "string", "description": "What is wrong, and what to send instead." } },
                },
            },
        },
    })
}

impl Route {
    fn operation(&self) -> Value {
        let parts = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let told = |name: &str, place: &str, is_required: bool| {
            let form = schema::parameter(self.path, name);
            json!({ "name": name, "in": place, "required": is_required, "schema": form })
        };
        let parts = parts.map(|name| told(name, "path", true));
        let query = self.query.iter().map(|name| told(name, "query", *name == "mode"));
        let mut operation = json!({
            "summary": self.about,
            "parameters": parts.chain(query).collect::<Vec<Value>>(),
            "responses": self.responses(),
        });
        let body = match self.body {
            Body::None => return operation,
            Body::Any => json!({ "*/*": {} }),
            Body::Json => json!({ "application/json": { "schema": schema::body(self.path, self.method) } }),
        };
        operation["requestBody"] = json!({ "required": self.body == Body::Json, "content": body });
        operation
    }

    fn responses(&self) -> Value {
        let shape = |shape: Value| json!({ "description": "It worked.", "content": { "application/json": { "schema": shape } } });
        let object = json!({ "type": "object" });
        let list = json!({ "type": "array" });
        let fine = match self.gives {
            "nothing" => json!({ "description": "It worked." }),
            "list" => shape(list),
            "published" => shape(json!({ "oneOf": [object, list] })),
            _ => shape(object),
        };
        let problem = json!({ "$ref": "#/components/schemas/Problem" });
        let problem =
            json!({ "description": "It did not.", "content": { "application/json": { "schema": problem } } });
        json!({ "2XX": fine, "4XX": problem, "503": problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::filter::NAMES;

    #[test]
    fn every_route_is_told_once() {
        let document = document();
        let paths = document["paths"].as_object().expect("paths");
        let told: usize = paths.values().map(|methods| methods.as_object().expect("methods").len()).sum();
        assert_eq!(told, ROUTES.len(), "two entries of the table have one path and method");
        for name in NAMES {
            let cancel = document["paths"]["/v2/messages"]["delete"]["parameters"].to_string();
            assert!(cancel.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
