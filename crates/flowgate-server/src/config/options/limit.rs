//! The options of the tables inside of a route.

use super::{Default, Kind, Opt, Section};

pub(crate) static KEY: Section = Section {
    path: "gateway.route.key",
    written: "key = { … }",
    about: "In a route: exactly one of these. `key = \"client\"` takes the address of the client (the first 64 bits of an \
        IPv6 address). A key has at most 1024 bytes.",
    options: &[
        Opt {
            name: "header",
            kind: Kind::Text("name of a header"),
            default: Default::Words("none"),
            about: "The value of this header, which cannot be one that the gateway changes; of `Host` the host, in lower case.",
            why: "",
        },
        Opt {
            name: "path",
            kind: Kind::Text("name of a parameter"),
            default: Default::Words("none"),
            about: "The value of this parameter of the route's `path`, decoded.",
            why: "",
        },
        Opt {
            name: "constant",
            kind: Kind::Text("text"),
            default: Default::Words("none"),
            about: "Always this text: all requests share one lane.",
            why: "",
        },
    ],
};

pub(crate) static RATE: Section = Section {
    path: "gateway.route.rate",
    written: "rate = { … }",
    about: "In a route or an override.",
    options: &[
        Opt {
            name: "limit",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Required,
            about: "How many may start per period. The most depends on the period; the error names it.",
            why: "",
        },
        Opt {
            name: "period",
            kind: Kind::Text("time"),
            default: Default::Required,
            about: "The period, counted from its first start.",
            why: "",
        },
        Opt {
            name: "burst",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Words("a window"),
            about: "Makes it a bucket: refilled steadily, with at most this many starts at once.",
            why: "A window is what API contracts usually say: so many per minute.",
        },
    ],
};

pub(crate) static OVERRIDE: Section = Section {
    path: "gateway.route.override",
    written: "[[gateway.route.override]]",
    about: "After the `[[gateway.route]]` it belongs to: other limits for one key. Set at least one of them; the rest are \
        the route's.",
    options: &[
        Opt {
            name: "key",
            kind: Kind::Text("text; an address where `key = \"client\"`"),
            default: Default::Required,
            about: "The key. The empty text is the lane of requests without a key.",
            why: "",
        },
        Opt {
            name: "max",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Words("the route's"),
            about: "How many may be in flight at once.",
            why: "",
        },
        Opt {
            name: "max_queue",
            kind: Kind::Bare("integer, 0 to 1000000000"),
            default: Default::Words("the route's"),
            about: "How many may wait in line; 0: nobody waits.",
            why: "",
        },
        Opt {
            name: "rate",
            kind: Kind::Other("table"),
            default: Default::Words("the route's"),
            about: "How many may start per period.",
            why: "",
        },
    ],
};

pub(crate) static LINE: Section = Section {
    path: "gateway.route.line",
    written: "line = { codel = { … } }",
    about: "In a route, instead of `line = \"fifo\"`.",
    options: &[Opt {
        name: "codel",
        kind: Kind::Other("table"),
        default: Default::Required,
        about: "CoDel; `{ codel = {} }` has its defaults.",
        why: "",
    }],
};

pub(crate) static CODEL: Section = Section {
    path: "gateway.route.line.codel",
    written: "codel = { … }",
    about: "In a `line`.",
    options: &[
        Opt {
            name: "target",
            kind: Kind::Text("time"),
            default: Default::Value("\"5ms\""),
            about: "The wait that is acceptable for a long time. Less than `interval`.",
            why: "What CoDel's authors found keeps a server busy without a standing line.",
        },
        Opt {
            name: "interval",
            kind: Kind::Text("time"),
            default: Default::Value("\"100ms\""),
            about: "How long the wait may stay above `target` before it counts as overload.",
            why: "Bursts are shorter than this; overload is not.",
        },
    ],
};

pub(crate) static REFUSAL: Section = Section {
    path: "gateway.route.refusal",
    written: "refusal = { … }",
    about: "In a route. Messages may contain placeholders: `{max}`, `{in_flight}`, `{waiting}` and `{retry_after}` \
        (seconds).",
    options: &[
        Opt {
            name: "status",
            kind: Kind::Bare("integer, 400 to 599"),
            default: Default::Value("429"),
            about: "The status.",
            why: "The budget is the client's own, so the client should slow down.",
        },
        Opt {
            name: "format",
            kind: Kind::Text("`\"envelope\"` or `\"problem\"`"),
            default: Default::Value("\"envelope\""),
            about: "The body: `{\"status\": \"error\", \"error\": {…}}`, or a problem document (RFC 9457).",
            why: "SDKs in the field parse it.",
        },
        Opt {
            name: "retry_after",
            kind: Kind::Bare("integer, seconds, 0 to 86400"),
            default: Default::Value("1"),
            about: "What `Retry-After` says if nothing better is known; 0: no such header.",
            why: "Slots come back within moments; a spent rate gives its own time.",
        },
        Opt {
            name: "code",
            kind: Kind::Text("text"),
            default: Default::Value("\"PLATFORM.CONCURRENCY_LIMIT_EXCEEDED\""),
            about: "The code for a request that found no slot, whether it waited or not. In a problem document it is the \
                end of `type`; `code` there is always that of the page in `docs/errors/`.",
            why: "SDKs in the field know it.",
        },
        Opt {
            name: "title",
            kind: Kind::Text("text"),
            default: Default::Value("\"Concurrency limit exceeded.\""),
            about: "Its title.",
            why: "As above.",
        },
        Opt {
            name: "message",
            kind: Kind::Text("text with placeholders"),
            default: Default::Value(
                "\"Maximum concurrent action requests per integration is {max}. Currently {in_flight} in flight.\"",
            ),
            about: "Its message.",
            why: "As above.",
        },
        Opt {
            name: "rate_code",
            kind: Kind::Text("text"),
            default: Default::Value("\"PLATFORM.RATE_LIMIT_EXCEEDED\""),
            about: "The code for a request over the rate.",
            why: "As above.",
        },
        Opt {
            name: "rate_title",
            kind: Kind::Text("text"),
            default: Default::Value("\"Rate limit exceeded.\""),
            about: "Its title.",
            why: "To match the other title.",
        },
        Opt {
            name: "rate_message",
            kind: Kind::Text("text with placeholders"),
            default: Default::Value(
                "\"Too many requests in the current window. Retry after {retry_after} s.\"",
            ),
            about: "Its message.",
            why: "It says how long to wait.",
        },
    ],
};
