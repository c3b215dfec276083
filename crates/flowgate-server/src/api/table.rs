//! The table of paths: what each does, takes and gives. The OpenAPI document and the reference page are made from it.

use super::{filter, letters};

/// A path, a method, what it does, the names of its query, and what it takes and gives.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) about: &'static str,
    pub(super) query: &'static [&'static str],
    pub(super) body: Body,
    pub(super) gives: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Body {
    None,
    Any,
    Json,
}

/// What a list of the log can be narrowed down by.
const LOG_FILTERS: &[&str] =
    &with_filter::<18>(&["cursor", "messageIds", "messageId", "state", "order", "count"]);
/// What a list of dead letters can be narrowed down by.
pub(super) const LETTER_FILTERS: &[&str] = &with_filter::<25>(&letters::OWN);
/// By what many messages can be cancelled.
const CANCEL_FILTERS: &[&str] = &with_filter::<16>(&["messageIds", "messageId", "all", "count"]);

/// These names, and those of a filter.
const fn with_filter<const N: usize>(own: &[&'static str]) -> [&'static str; N] {
    assert!(own.len() + filter::NAMES.len() == N);
    let mut all = [""; N];
    let mut place = 0;
    while place < N {
        all[place] = if place < own.len() { own[place] } else { filter::NAMES[place - own.len()] };
        place += 1;
    }
    all
}

pub(super) const NONE: &[&str] = &[];

pub(super) const fn route(
    method: &'static str,
    path: &'static str,
    about: &'static str,
    query: &'static [&'static str],
    body: Body,
    gives: &'static str,
) -> Route {
    Route { path, method, about, query, body, gives }
}

/// Why something waits: the words of `flowgate explain`.
pub(super) const EXPLAIN: [Route; 3] = [
    route(
        "get",
        "/v2/flowControl/{key}/explain",
        "Why messages of a key wait.",
        NONE,
        Body::None,
        "Explanation",
    ),
    route(
        "get",
        "/v2/messages/{id}/explain",
        "Why a message waits, or what became of it.",
        NONE,
        Body::None,
        "Explanation",
    ),
    route(
        "get",
        "/v2/explain",
        "The same for a message, a task, key:<key> or queue:<queue>.",
        &["what"],
        Body::None,
        "Explanation",
    ),
];

pub(super) const ROUTES: [Route; 47] = [
    route(
        "post",
        "/v2/publish/{destination}",
        "Publish a message to a URL or a URL group. The destination follows the path as it is, including its query; \
         headers say how the message is delivered.",
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
    route(
        "post",
        "/v2/batch",
        "Publish many messages. If one cannot be read, none is stored. If a step or a start of a run is refused only as it is \
         stored (400: its run has ended), no message outside of runs is stored, but other steps and starts may be; sent again \
         without it, those with run ids of the sender's are not stored twice.",
        NONE,
        Body::Json,
        "batch",
    ),
    route(
        "get",
        "/v2/messages/{id}",
        "A message that waits, is under way, or was delivered recently.",
        NONE,
        Body::None,
        "Message",
    ),
    route("delete", "/v2/messages/{id}", "Cancel a message.", NONE, Body::None, "Cancelled"),
    route(
        "delete",
        "/v2/messages",
        "Cancel many messages, by id or by filter; with neither, all of them, and with both, those that both mean. `count` \
         limits how many, except that 100 means no limit, because the JavaScript client sends it to mean all. A filter \
         without a value is 400.",
        CANCEL_FILTERS,
        Body::None,
        "Cancelled",
    ),
    route(
        "get",
        "/v2/flowControl",
        "All flow-control keys; and `$`, which stands for messages without a key, while some wait because all slots of \
         the cluster-wide cap are taken.",
        &["search"],
        Body::None,
        "Key[]",
    ),
    route(
        "get",
        "/v2/flowControl/{key}",
        "One flow-control key: in flight, waiting, limits, window. `unread` is present if some of its limits cannot be \
         read, so that none of its messages start.",
        NONE,
        Body::None,
        "Key",
    ),
    route(
        "post",
        "/v2/flowControl/{key}/pause",
        "Pause a key: none of its messages start.",
        NONE,
        Body::None,
        "nothing",
    ),
    route("post", "/v2/flowControl/{key}/resume", "Resume a key.", NONE, Body::None, "nothing"),
    route(
        "post",
        "/v2/flowControl/{key}/pin",
        "Pin limits that override those of the messages.",
        &["parallelism", "rate", "period", "smooth"],
        Body::None,
        "nothing",
    ),
    route(
        "post",
        "/v2/flowControl/{key}/unpin",
        "Unpin a key: the limits of the messages apply again.",
        &["parallelism", "rate"],
        Body::None,
        "nothing",
    ),
    route(
        "post",
        "/v2/flowControl/{key}/resetRate",
        "Begin a new window of the rate now.",
        NONE,
        Body::None,
        "nothing",
    ),
    route(
        "post",
        "/v2/flowControl/{key}/mode",
        "Choose whose limits govern what waits: the newest sent (latest), each message's own (own), or the same as for \
         all keys (default).",
        &["mode"],
        Body::None,
        "nothing",
    ),
    route(
        "get",
        "/v2/globalParallelism",
        "How many deliveries are under way in total.",
        NONE,
        Body::None,
        "Global",
    ),
    route("get", "/v2/queues", "All queues.", NONE, Body::None, "Queue[]"),
    route("post", "/v2/queues", "Create a queue, or change it.", NONE, Body::Json, "nothing"),
    route("get", "/v2/queues/{name}", "One queue.", NONE, Body::None, "Queue"),
    route("delete", "/v2/queues/{name}", "Remove a queue.", NONE, Body::None, "nothing"),
    route(
        "post",
        "/v2/queues/{name}/pause",
        "Pause a queue: none of its messages start.",
        NONE,
        Body::None,
        "nothing",
    ),
    route("post", "/v2/queues/{name}/resume", "Resume a queue.", NONE, Body::None, "nothing"),
    route("get", "/v2/events", "What happened to messages, newest first.", LOG_FILTERS, Body::None, "Events"),
    route("get", "/v2/logs", "The same under its newer name.", LOG_FILTERS, Body::None, "Events"),
    route(
        "get",
        "/v2/dlq",
        "Dead letters, newest first: messages, and those that ended workflow runs (source=qstash or source=workflow for \
         only one kind).",
        LETTER_FILTERS,
        Body::None,
        "Letters",
    ),
    route(
        "delete",
        "/v2/dlq",
        "Delete many dead letters, by id or by filter; with neither, all of them, page by page. A filter without a value \
         is 400.",
        LETTER_FILTERS,
        Body::None,
        "Deleted",
    ),
    route("get", "/v2/dlq/{id}", "One dead letter.", NONE, Body::None, "Letter"),
    route("delete", "/v2/dlq/{id}", "Delete a dead letter.", NONE, Body::None, "nothing"),
    route(
        "post",
        "/v2/dlq/retry",
        "Send many dead letters again, by id or by filter. (Those of runs are resumed or restarted instead.)",
        LETTER_FILTERS,
        Body::None,
        "SentAgain",
    ),
    route(
        "post",
        "/v2/dlq/retry/{id}",
        "Send a dead letter again; headers override its settings.",
        NONE,
        Body::None,
        "MessageName",
    ),
    route("get", "/v2/schedules", "All schedules.", NONE, Body::None, "Schedule[]"),
    route(
        "post",
        "/v2/schedules/{destination}",
        "Create a schedule, or replace it. Needs the header Upstash-Cron.",
        NONE,
        Body::Any,
        "ScheduleName",
    ),
    route("get", "/v2/schedules/{id}", "One schedule.", NONE, Body::None, "Schedule"),
    route("delete", "/v2/schedules/{id}", "Remove a schedule.", NONE, Body::None, "nothing"),
    route(
        "patch",
        "/v2/schedules/{id}/pause",
        "Pause a schedule: it sends nothing until it is resumed.",
        NONE,
        Body::None,
        "nothing",
    ),
    route("post", "/v2/schedules/{id}/pause", "The same.", NONE, Body::None, "nothing"),
    route("patch", "/v2/schedules/{id}/resume", "Resume a schedule.", NONE, Body::None, "nothing"),
    route("post", "/v2/schedules/{id}/resume", "The same.", NONE, Body::None, "nothing"),
    route("get", "/v2/topics", "All URL groups.", NONE, Body::None, "Group[]"),
    route("get", "/v2/topics/{name}", "One URL group.", NONE, Body::None, "Group"),
    route("delete", "/v2/topics/{name}", "Remove a URL group.", NONE, Body::None, "nothing"),
    route(
        "patch",
        "/v2/topics/{name}",
        "Set settings for every message to the group.",
        NONE,
        Body::Json,
        "nothing",
    ),
    route(
        "post",
        "/v2/topics/{name}/endpoints",
        "Add endpoints to a URL group, which is created if it does not exist.",
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
    route("get", "/v2/keys", "The signing keys.", NONE, Body::None, "SigningKeys"),
    route(
        "post",
        "/v2/keys/rotate",
        "Rotate the signing keys: the next one becomes the current one.",
        NONE,
        Body::None,
        "SigningKeys",
    ),
    route("get", "/openapi.json", "This document.", NONE, Body::None, "object"),
];
