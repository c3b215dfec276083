//! What the parts of a request look like, for the OpenAPI document.

use serde_json::{Value, json};

/// The form of a part of a path, or of a value in the query.
pub(super) fn parameter(path: &str, name: &str) -> Value {
    let whole = |least: u64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
    match name {
        "parallelism" | "rate" if path.ends_with("/unpin") => json!({ "type": "boolean" }),
        "key" | "name" | "queue" => json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,256}$" }),
        "parallelism" | "rate" => whole(1, 1_000_000_000),
        "period" => whole(1, 604_800),
        // More than a page has is no more than a page.
        "count" => whole(1, 1_000_000),
        "all" => json!({ "type": "string", "enum": ["true"] }),
        "order" => json!({ "type": "string", "enum": ["latestFirst"] }),
        "responseStatus" => json!({ "type": "string", "pattern": "^(0|[1-9][0-9]{2})$" }),
        "source" => json!({ "type": "string", "enum": ["qstash", "workflow"] }),
        "workflowUrlExactMatch" => json!({ "type": "boolean" }),
        "fromDate" | "toDate" | "workflowCreatedAt" => whole(0, 1 << 53),
        "cursor" if path.starts_with("/v2/workflows/") && !path.contains("/dlq") => {
            json!({ "type": "string", "pattern": "^[0-9a-f]{12}-[A-Za-z0-9]{10}$" })
        }
        "cursor" => json!({ "type": "string", "pattern": "^[0-9]{1,18}$" }),
        "smooth" => json!({ "type": "boolean" }),
        "mode" => json!({ "type": "string", "enum": ["latest", "own", "default"] }),
        "state" => {
            let states = [
                "CREATED",
                "ACTIVE",
                "RETRY",
                "ERROR",
                "DELIVERED",
                "FAILED",
                "CANCEL_REQUESTED",
                "CANCELED",
            ];
            json!({ "type": "string", "enum": states.iter().chain(&["IN_PROGRESS"]).collect::<Vec<_>>() })
        }
        // A name without a value asks for nothing in a list, and is refused where something is changed.
        _ => json!({ "type": "string", "pattern": "[^,\\s]" }),
    }
}

/// The form of a JSON body.
pub(super) fn body(path: &str, method: &str) -> Value {
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,256}$" });
    let text = json!({ "type": "string" });
    match (path, method) {
        ("/v2/batch", _) => json!({
            "type": "array",
            "maxItems": 10_000,
            "items": {
                "type": "object",
                "required": ["destination"],
                "properties": {
                    "destination": { "type": "string", "description": "A URL, or the name of a URL group." },
                    "headers": { "type": "object", "additionalProperties": text },
                    "body": { "type": ["string", "null"] },
                    "queue": { "type": ["string", "null"], "pattern": "^[A-Za-z0-9._-]{1,256}$" },
                },
            },
        }),
        ("/v2/queues", _) => json!({
            "type": "object",
            "required": ["queueName"],
            "properties": {
                "queueName": name,
                "parallelism": { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 },
                "paused": { "type": "boolean" },
            },
        }),
        ("/v2/topics/{name}", _) => json!({
            "type": "object",
            "required": ["headers"],
            "properties": { "headers": { "type": "object", "additionalProperties": text } },
        }),
        (_, method) if path.ends_with("/endpoints") => json!({
            "type": "object",
            "required": ["endpoints"],
            "properties": {
                "endpoints": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1000,
                    "items": {
                        "type": "object",
                        "required": if method == "delete" { json!([]) } else { json!(["url"]) },
                        "properties": { "name": name, "url": { "type": "string", "pattern": "^https?://[a-z0-9.-]+(/.*)?$" } },
                    },
                },
            },
        }),
        _ => json!({}),
    }
}
