//! The options of the tables inside of a route.

use super::{Default, Kind, Opt, Section};

pub(crate) static KEY: Section = Section {
    path: "gateway.route.key",
    written: "key = { … }",
    about: "In a route: exactly one of these. `key = \"client\"` takes the address of the client, of an IPv6 address its first \
            64 bits. A key has at most 1024 bytes.",
    options: &[
        Opt {
            name: "header",
            kind: Kind::Text("name of a header"),
            default: Default::Words("none"),
            about: "The value of this header.",
            why: "",
        },
        Opt {
            name: "path",
            kind: Kind::Text("name of a parameter"),
            default: Default::Words("none"),
            about: "What this parameter of the route's `path` stands for, decoded.",
            why: "",
        },
        Opt {
            name: "constant",
            kind: Kind::Text("text"),
            default: Default::Words("none"),
            about: "Always this: all requests share one lane.",
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
            about: "How many may start per period. A short period holds only so many; the error names the most.",
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
            about: "Makes it a bucket: refilled steadily, and at most so many starts at once.",
            why: "A window is what clients are usually told: so many per minute.",
        },
    ],
};

pub(crate) static OVERRIDE: Section = Section {
    path: "gateway.route.override",
    written: "[[gateway.route.override]]",
    about: "Behind the `[[gateway.route]]` it belongs to: other limits for one key. At least one of them; the rest is the \
            route's.",
    options: &[
        Opt {
            name: "key",
            kind: Kind::Text("text; an address where `key = \"client\"`"),
            default: Default::Required,
            about: "For which key. The empty text is the lane of those without a key.",
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
            about: "The wait that is acceptable for long. Less than `interval`.",
            why: "What CoDel's authors found to keep a server busy without a standing line.",
        },
        Opt {
            name: "interval",
            kind: Kind::Text("time"),
            default: Default::Value("\"100ms\""),
            about: "How long the wait may stay above `target` before it counts as overload.",
            why: "Bursts are shorter than that, overload is not.",
        },
    ],
};

pub(crate) static REFUSAL: Section = Section {
    path: "gateway.route.refusal",
    written: "refusal = { … }",
    about: "In a route. Messages may have places: `{max}`, `{in_flight}`, `{waiting}` and `{retry_after}` (seconds).",
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
            about: "What `Retry-After` says where nothing better is known; 0: no such header.",
            why: "Slots come back within moments; a rate that is spent says its own time.",
        },
        Opt {
            name: "code",
            kind: Kind::Text("text"),
            default: Default::Value("\"PLATFORM.CONCURRENCY_LIMIT_EXCEEDED\""),
            about: "The code for a request that found no slot, whether it waited or not. In a problem document it ends \
                the `type`; `code` \
                    there is always that of the page in `docs/errors/`.",
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
            kind: Kind::Text("text with places"),
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
            about: "The code for one over the rate.",
            why: "As above.",
        },
        Opt {
            name: "rate_title",
            kind: Kind::Text("text"),
            default: Default::Value("\"Rate limit exceeded.\""),
            about: "Its title.",
            why: "In the words of the other.",
        },
        Opt {
            name: "rate_message",
            kind: Kind::Text("text with places"),
            default: Default::Value(
                "\"Too many requests in the current window. Retry after {retry_after} s.\"",
            ),
            about: "Its message.",
            why: "It says what helps: how long.",
        },
    ],
};
