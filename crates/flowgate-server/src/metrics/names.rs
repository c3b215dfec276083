//! Every metric: its name, its kind, its labels and what it means.
//!
//! Owns the table. The page, its reference and the tests of the dashboard are made from it, so that they
//! cannot disagree. Names are stable: a name that changes is kept beside its successor for a release.

/// A metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Each with what bounds its values.
    pub(super) labels: &'static [(&'static str, &'static str)],
    pub(super) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

const QUEUE: (&str, &str) =
    ("queue", "the first 100 queues by priority and name; all others together as `_other`");
const GATE: (&str, &str) =
    ("gate", "`api`, `webhooks`, and `gateway/<route>` for each limited route of the configuration");

const fn counter(
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels: &[], help }
}

pub(super) static BUILD: Metric =
    gauge("flowgate_build_info", &[("version", "one")], "Always 1; the version that runs is a label.");
pub(super) static STARTED: Metric =
    gauge("process_start_time_seconds", &[], "When this process started, in seconds since the Unix epoch.");
pub(super) static MEMORY: Metric =
    gauge("process_resident_memory_bytes", &[], "Resident memory of this process.");

pub(super) static ACCEPTED: Metric = counter(
    "flowgate_messages_accepted_total",
    &[],
    "Messages that this server stored, including callbacks and scheduled ones.",
);
pub(super) static DUPLICATES: Metric = counter(
    "flowgate_messages_duplicate_total",
    &[],
    "Messages that were not stored because one with the same deduplication id was stored before.",
);
pub(super) static ATTEMPTS: Metric = counter(
    "flowgate_delivery_attempts_total",
    &[("outcome", "`delivered`, `retried` (it will be tried again) or `failed` (it will not)")],
    "Delivery attempts that ended on this server.",
);
pub(super) static IN_FLIGHT: Metric =
    gauge("flowgate_deliveries_in_flight", &[], "Delivery attempts under way on this server.");
pub(super) static DURATION: Metric = histogram(
    "flowgate_delivery_duration_seconds",
    "How long delivery attempts took, from the request to the end of the response.",
);
pub(super) static WAIT: Metric = histogram(
    "flowgate_delivery_wait_seconds",
    "How long messages waited, from when they could have started to the beginning of their first attempt.",
);
pub(super) static REQUESTS: Metric = counter(
    "flowgate_api_requests_total",
    &[("code", "`1xx`, `2xx`, `3xx`, `4xx` or `5xx`")],
    "Requests that the API answered.",
);

pub(super) static LINES_DROPPED: Metric = counter(
    "flowgate_log_lines_dropped_total",
    &[],
    "Lines of the message log that were dropped because the store did not accept them in 30 tries.",
);
pub(super) static GATE_IN_USE: Metric =
    gauge("flowgate_gate_in_use", &[GATE], "Slots of a gate that are in use.");
pub(super) static GATE_WAITING: Metric =
    gauge("flowgate_gate_waiting", &[GATE], "How many entries wait at a gate.");
pub(super) static GATE_MAX: Metric =
    gauge("flowgate_gate_max", &[GATE], "How many may be in flight at a gate, for each of its keys.");
pub(super) static GATE_REFUSALS: Metric = counter(
    "flowgate_gate_refusals_total",
    &[GATE, ("reason", "the nine reasons of RC5026 and RC5013")],
    "Entries that a gate refused.",
);
pub(super) static CONNECTIONS: Metric = gauge(
    "flowgate_gateway_connections",
    &[("state", "`active` or `resting` (nothing to do for a while)")],
    "Connections of the gateway's clients.",
);

pub(super) static STORE_UP: Metric = gauge(
    "flowgate_store_up",
    &[],
    "1 if the store answered the last query, 0 if not; then the figures below that come from the store are left out.",
);
pub(super) static FIGURES_AGE: Metric = gauge(
    "flowgate_store_figures_age_seconds",
    &[],
    "How old the figures below are: the store is queried at most every 5 s, however often this page is.",
);
pub(super) static CLUSTER_IN_USE: Metric = gauge(
    "flowgate_cluster_in_use",
    &[],
    "Tasks that are claimed or running, across all servers and workers.",
);
pub(super) static CLUSTER_CAP: Metric = gauge(
    "flowgate_cluster_cap",
    &[],
    "How many tasks may be claimed or running in total; left out while there is no cap.",
);
pub(super) static QUEUE_IN_USE: Metric =
    gauge("flowgate_queue_in_use", &[QUEUE], "Tasks of a queue that are claimed or running.");
pub(super) static QUEUE_WAITING: Metric = gauge(
    "flowgate_queue_waiting",
    &[QUEUE],
    "Tasks in line; up to 100,000 per queue are counted, including delayed ones.",
);
pub(super) static QUEUE_DELAYED: Metric = gauge(
    "flowgate_queue_delayed",
    &[QUEUE],
    "Tasks that are not in line yet: delayed, or between attempts; counted like those in line.",
);
pub(super) static QUEUE_MAX: Metric = gauge(
    "flowgate_queue_max",
    &[QUEUE],
    "How many tasks of a queue may be in use; left out for a queue without a max.",
);
pub(super) static QUEUE_PAUSED: Metric =
    gauge("flowgate_queue_paused", &[QUEUE], "1 if nothing of a queue starts because it is paused.");
pub(super) static QUEUE_DEAD: Metric = gauge(
    "flowgate_queue_dead",
    &[QUEUE],
    "Tasks of a queue that will not run again, including dead letters; among the newest 20,000 of all queues.",
);
pub(super) static OLDEST: Metric = gauge(
    "flowgate_oldest_message_seconds",
    &[],
    "How long ago the oldest message in line could have started; 0 if none is in line, and left out if 1,000 delayed or \
     other tasks were sent before it.",
);
pub(super) static WORKERS: Metric = gauge("flowgate_workers", &[], "Servers and workers with a live lease.");
pub(super) static WORKER_SLOTS: Metric = gauge(
    "flowgate_worker_slots",
    &[("state", "`in_use` or `free`")],
    "Slots of all servers and workers together.",
);

/// All of them, in the order of the page.
pub(super) static METRICS: [&Metric; 31] = [
    &BUILD,
    &STARTED,
    &MEMORY,
    &ACCEPTED,
    &DUPLICATES,
    &ATTEMPTS,
    &IN_FLIGHT,
    &DURATION,
    &WAIT,
    &REQUESTS,
    &LINES_DROPPED,
    &GATE_IN_USE,
    &GATE_WAITING,
    &GATE_MAX,
    &GATE_REFUSALS,
    &CONNECTIONS,
    &STORE_UP,
    &FIGURES_AGE,
    &CLUSTER_IN_USE,
    &CLUSTER_CAP,
    &QUEUE_IN_USE,
    &QUEUE_WAITING,
    &QUEUE_DELAYED,
    &QUEUE_MAX,
    &QUEUE_PAUSED,
    &QUEUE_DEAD,
    &OLDEST,
    &WORKERS,
    &WORKER_SLOTS,
    &TRACES_SENT,
    &TRACES_DROPPED,
];

pub(super) static TRACES_SENT: Metric =
    counter("flowgate_trace_spans_sent_total", &[], "Spans that the trace collector accepted.");
pub(super) static TRACES_DROPPED: Metric = counter(
    "flowgate_trace_spans_dropped_total",
    &[],
    "Spans that were dropped because the collector did not keep up or did not accept them.",
);
