//! What answers look like, for the OpenAPI document: every field that an answer can have, and which it always has.
//!
//! Owns the table of shapes. A test holds real answers of every path against it.

use serde_json::{Map, Value, json};

/// A shape: its name, and its fields. A field that is not always there ends with `?`. Its kind is `text`, `whole`, `number`,
/// `yes`, `texts`, `headers` (a map of lists of texts), `any`, the name of another shape, or one of these with `[]` for a
/// list, with `{}` for a map, or with `|null`.
type Shape = (&'static str, &'static [(&'static str, &'static str)]);

/// The fields of a message that stand in its log and in its dead letter too.
const MESSAGE: &[(&str, &str)] = &[
    ("messageId", "text"),
    ("url", "text"),
    ("method", "text"),
    ("maxRetries", "whole"),
    ("notBefore", "whole"),
    ("createdAt", "whole"),
    ("header", "headers"),
    ("body?", "text"),
    ("bodyBase64?", "text"),
    ("callerIP?", "text"),
    ("callerIp?", "text"),
    ("queueName?", "text"),
    ("topicName?", "text"),
    ("endpointName?", "text"),
    ("scheduleId?", "text"),
    ("workflowRunId?", "text"),
    ("callback?", "text"),
    ("failureCallback?", "text"),
    ("callbackHeader?", "headers"),
    ("failureCallbackHeader?", "headers"),
    ("label?", "text"),
    ("labels?", "texts"),
    ("retryDelayExpression?", "text"),
    ("timeout?", "whole"),
    ("smooth?", "yes"),
    ("flowControlKey?", "text"),
    ("period?", "number"),
    ("parallelism?", "whole"),
    ("rate?", "whole"),
];

/// What it has in a log beside.
const EVENT: &[(&str, &str)] = &[
    ("time", "whole"),
    ("state", "text"),
    ("callbackHeaders?", "headers"),
    ("failureCallbackHeaders?", "headers"),
    ("retryDelayExpr?", "text"),
    ("nextDeliveryTime?", "whole"),
    ("error?", "text"),
    ("responseStatus?", "whole"),
    ("responseHeader?", "headers"),
    ("responseBody?", "text"),
    ("responseBodyBase64?", "text"),
];

/// What it has as a dead letter beside.
const LETTER: &[(&str, &str)] = &[
    ("dlqId", "text"),
    ("reason", "text"),
    ("responseStatus", "whole"),
    ("responseHeader?", "headers"),
    ("responseBody?", "text"),
    ("responseBodyBase64?", "text"),
    ("workflowCreatedAt?", "whole"),
    ("workflowUrl?", "text"),
    ("failureCallbackInfo?", "FailureCallbackInfo"),
];

/// What a schedule has of the message that it sends, and what it has of its own.
const SCHEDULE: &[(&str, &str)] = &[
    ("scheduleId", "text"),
    ("cron", "text"),
    ("destination", "text"),
    ("retries", "whole"),
    ("isPaused", "yes"),
    ("delay?", "whole"),
    ("lastScheduleTime?", "whole"),
    ("nextScheduleTime?", "whole"),
    ("lastScheduleStates?", "text{}"),
    ("error?", "text"),
];
const NOT_OF_SCHEDULES: [&str; 5] = ["messageId", "url", "notBefore", "maxRetries", "scheduleId?"];

const SHAPES: &[Shape] = &[
    ("Problem", &[("error", "text")]),
    (
        "Sent",
        &[
            ("messageId", "text"),
            ("url?", "text"),
            ("deduplicated?", "yes"),
            ("workflowRunId?", "text"),
            ("workflowCreatedAt?", "whole"),
        ],
    ),
    ("Cancelled", &[("cancelled", "whole")]),
    ("Deleted", &[("deleted", "whole"), ("cursor?", "text")]),
    ("MessageName", &[("messageId", "text")]),
    ("SentAgain", &[("responses", "MessageName[]"), ("cursor", "text")]),
    ("Events", &[("events", "Event[]"), ("logs", "Event[]"), ("cursor?", "text")]),
    ("Letters", &[("messages", "Letter[]"), ("cursor?", "text")]),
    (
        "FailureCallbackInfo",
        &[
            ("state", "text"),
            ("responseStatus?", "whole"),
            ("responseBody?", "text"),
            ("responseHeaders?", "headers"),
        ],
    ),
    (
        "Key",
        &[
            ("flowControlKey", "text"),
            ("waitListSize", "whole"),
            ("parallelismCount", "whole"),
            ("parallelismMax?", "whole"),
            ("rateCount?", "whole"),
            ("rateMax?", "whole"),
            ("ratePeriod?", "whole"),
            ("ratePeriodMillis?", "whole"),
            ("ratePeriodStart?", "whole"),
            ("isSmooth?", "yes"),
            ("isPaused", "yes"),
            ("isLatest", "yes"),
            ("isPinnedParallelism", "yes"),
            ("isPinnedRate", "yes"),
            ("unread?", "text"),
        ],
    ),
    ("Global", &[("parallelismCount", "whole"), ("parallelismMax?", "whole")]),
    (
        "Queue",
        &[
            ("name", "text"),
            ("parallelism", "whole"),
            ("paused", "yes"),
            ("createdAt", "whole"),
            ("updatedAt", "whole"),
            ("lag", "whole"),
        ],
    ),
    ("ScheduleName", &[("scheduleId", "text")]),
    ("Endpoint", &[("name?", "text"), ("url", "text")]),
    (
        "Group",
        &[("name", "text"), ("createdAt", "whole"), ("updatedAt", "whole"), ("endpoints", "Endpoint[]")],
    ),
    ("SigningKeys", &[("current", "text"), ("next", "text")]),
    (
        "Explanation",
        &[
            ("subject", "text"),
            ("verdict", "text"),
            ("held_by", "any{}[]"),
            ("facts", "Fact[]"),
            ("place", "Spot|null"),
            ("estimate", "any"),
            ("holders", "Holder[]"),
            ("holdersOfOthers?", "whole"),
            ("workers", "Worker[]"),
            ("help", "texts"),
            ("first", "Explanation|null"),
            ("messageId?", "text"),
        ],
    ),
    ("Fact", &[("name", "text"), ("value", "text")]),
    (
        "Spot",
        &[("ahead_in_key", "whole|null"), ("ahead_in_queue", "whole"), ("ahead_in_other_queues", "whole")],
    ),
    (
        "Holder",
        &[
            ("task", "whole"),
            ("messageId?", "text"),
            ("kind", "text"),
            ("queue", "text"),
            ("key", "text|null"),
            ("worker", "text"),
            ("for_ms", "whole"),
            ("lease_ms", "whole|null"),
        ],
    ),
    ("Worker", &[("id", "whole"), ("name", "text"), ("in_use", "whole"), ("slots", "whole")]),
    ("RunName", &[("workflowRunId", "text"), ("workflowCreatedAt", "whole"), ("deduplicated?", "yes")]),
    ("RunsAgain", &[("workflowRuns", "RunName[]"), ("cursor", "text")]),
    ("RawStep", &[("messageId", "text"), ("body", "text"), ("callType", "text")]),
    ("Runs", &[("runs", "Run[]"), ("cursor?", "text")]),
    (
        "Run",
        &[
            ("workflowRunId", "text"),
            ("workflowUrl", "text"),
            ("workflowState", "text"),
            ("workflowRunCreatedAt", "whole"),
            ("workflowRunCompletedAt?", "whole"),
            ("workflowRunResponse?", "text"),
            ("label?", "text"),
            ("labels?", "texts"),
            ("flowControlKey?", "text"),
            ("dlqId?", "text"),
            ("reason?", "text"),
            ("invoker?", "Invoker"),
            ("failureFunction?", "FailureFunction"),
            ("steps", "Steps[]"),
        ],
    ),
    ("Invoker", &[("workflowRunId", "text"), ("workflowUrl", "text"), ("workflowRunCreatedAt", "whole")]),
    (
        "FailureFunction",
        &[
            ("messageId", "text"),
            ("url", "text"),
            ("state", "text"),
            ("failHeaders", "headers"),
            ("failStatus", "whole"),
            ("failResponse", "text"),
            ("dlqId?", "text"),
            ("responseStatus?", "whole"),
            ("responseHeaders?", "headers"),
            ("responseBody?", "text"),
            ("errors?", "any{}[]"),
            ("nextDeliveryTime?", "whole"),
        ],
    ),
    ("Steps", &[("type", "text"), ("steps", "any{}[]")]),
    (
        "Notified",
        &[
            ("waiter", "any{}"),
            ("messageId", "text"),
            ("error", "text"),
            ("workflowRunId", "text"),
            ("workflowCreatedAt", "whole"),
            ("deduplicated?", "yes"),
        ],
    ),
    (
        "Waiter",
        &[
            ("url", "text"),
            ("deadline", "whole"),
            ("headers", "headers"),
            ("timeoutUrl", "text"),
            ("timeoutHeaders", "headers"),
        ],
    ),
];

/// All shapes, by their names.
pub(super) fn all() -> Map<String, Value> {
    let plain = |(name, fields): &Shape| ((*name).to_owned(), object(fields.iter().copied()));
    let mut all: Map<String, Value> = SHAPES.iter().map(plain).collect();
    let message = || MESSAGE.iter().copied();
    // Callbacks have another name in the log, and a body is base64 there.
    let in_log = message()
        .filter(|(name, _)| !["callbackHeader?", "failureCallbackHeader?", "bodyBase64?"].contains(name));
    let in_schedule = message().filter(|(name, _)| !NOT_OF_SCHEDULES.contains(name));
    all.insert("Message".to_owned(), object(message()));
    all.insert("Event".to_owned(), object(in_log.chain(EVENT.iter().copied())));
    all.insert("Letter".to_owned(), object(message().chain(LETTER.iter().copied())));
    all.insert("Schedule".to_owned(), object(in_schedule.chain(SCHEDULE.iter().copied())));
    all
}

fn object<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (field, kind) in fields {
        let name = field.trim_end_matches('?');
        properties.insert(name.to_owned(), form(kind));
        if name == field {
            required.push(name);
        }
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// The form of a kind.
pub(super) fn form(kind: &str) -> Value {
    if let Some(one) = kind.strip_suffix("|null") {
        return json!({ "anyOf": [form(one), { "type": "null" }] });
    }
    if let Some(one) = kind.strip_suffix("[]") {
        return json!({ "type": "array", "items": form(one) });
    }
    if let Some(one) = kind.strip_suffix("{}") {
        return json!({ "type": "object", "additionalProperties": form(one) });
    }
    match kind {
        "text" => json!({ "type": "string" }),
        "whole" => json!({ "type": "integer" }),
        "number" => json!({ "type": "number" }),
        "yes" => json!({ "type": "boolean" }),
        "texts" => form("text[]"),
        "headers" => form("texts{}"),
        "any" => json!({}),
        "object" => json!({ "type": "object" }),
        // One for a URL, a list for a URL group.
        "published" => json!({ "anyOf": [form("Sent"), form("Sent[]")] }),
        "batch" => json!({ "type": "array", "items": form("published") }),
        shape => json!({ "$ref": format!("#/components/schemas/{shape}") }),
    }
}
