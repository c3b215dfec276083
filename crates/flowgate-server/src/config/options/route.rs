//! The options of `[[gateway.route]]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static ROUTE: Section = Section {
    path: "gateway.route",
    written: "[[gateway.route]]",
    about: "Of two routes that match a request, the more specific one takes it, wherever it stands in the file: an exact \
            host before a wildcard before any host; then, segment by segment, a literal before a parameter before the rest.",
    options: &[
        Opt {
            name: "name",
            kind: Kind::Text("letters, digits, `.`, `_` and `-`, up to 64"),
            default: Default::Required,
            about: "What the route is called in refusals, figures and logs. No two have the same.",
            why: "",
        },
        Opt {
            name: "host",
            kind: Kind::Text("host, or `*.` and a host"),
            default: Default::Words("any host"),
            about: "Which host it takes, without a port; `*.example.com` takes all below `example.com`.",
            why: "Most gateways have one host.",
        },
        Opt {
            name: "path",
            kind: Kind::Text("path pattern, like `/v1/{tenant}/actions/{*rest}`"),
            default: Default::Required,
            about: "Which paths it takes: `{tenant}` is one segment that is not empty, `{*rest}` all that is left, be it \
                    nothing: `/v1/{*rest}` takes `/v1/` and not `/v1`. Paths are compared in their normal form (RFC \
                    3986): `%61` is \
                    `a`, and `.` and `..` are followed.",
            why: "",
        },
        Opt {
            name: "methods",
            kind: Kind::Other("list of methods, like `\"POST\"`"),
            default: Default::Words("all"),
            about: "Which methods it takes.",
            why: "A limit that a method slips past is rarely meant.",
        },
        Opt {
            name: "upstreams",
            kind: Kind::Other("list of `http://` URLs, or `h2c://` for HTTP/2"),
            default: Default::Words("those of `[gateway]`"),
            about: "Where its requests go, in turn.",
            why: "Most gateways stand before one service.",
        },
        Opt {
            name: "limit",
            kind: Kind::Bare("`true` or `false`"),
            default: Default::Value("true"),
            about: "Whether the route is limited. With `false` its requests pass, and no option of a limit may stand beside it.",
            why: "A route is listed to be limited; `false` is for reads below a limited path.",
        },
        Opt {
            name: "key",
            kind: Kind::Other("`\"client\"`, or a table"),
            default: Default::Words("`{ constant = … }`, the name of the route"),
            about: "What partitions the route: each key has a lane of its own, with all of these limits.",
            why: "One lane is the bound that protects an upstream, whoever asks.",
        },
        Opt {
            name: "missing_key",
            kind: Kind::Text("`\"shared\"` or `\"refuse\"`"),
            default: Default::Value("\"shared\""),
            about: "What becomes of a request without the header of its key: it shares the lane of the empty key with all \
                    others without it, or is told 400. Only where `key` is a header.",
            why: "Leaving out a header gains nobody a slot, and breaks nobody.",
        },
        Opt {
            name: "max",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Value("30"),
            about: "How many may be in flight at once, in each lane.",
            why: "What upstreams with limits of their own usually bear from one integration.",
        },
        Opt {
            name: "max_queue",
            kind: Kind::Bare("integer, 0 to 1000000000"),
            default: Default::Value("0"),
            about: "How many may wait in each lane's line; 0: nobody waits, and a request that cannot start is refused at once.",
            why: "An answer at once is worth more to a client that can retry than a wait it cannot see.",
        },
        Opt {
            name: "queue_timeout",
            kind: Kind::Text("time"),
            default: Default::Words("as long as it takes"),
            about: "How long one may wait in line. Only with `max_queue`.",
            why: "The line is bounded already, and a client that has gone leaves it by itself.",
        },
        Opt {
            name: "line",
            kind: Kind::Other("`\"fifo\"`, or a table: `codel`"),
            default: Default::Value("\"fifo\""),
            about: "In which order the line moves: first in, first out, or CoDel, which under lasting overload serves the \
                    newest first and lets go of those who have waited too long. `codel` only with `max_queue`.",
            why: "It is fair, and what people expect of a line.",
        },
        Opt {
            name: "rate",
            kind: Kind::Other("table"),
            default: Default::Words("no rate"),
            about: "How many may start per period, in each lane, beside `max`.",
            why: "Slots alone bound what an upstream has to bear.",
        },
        Opt {
            name: "max_keys",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("10000"),
            about: "How many lanes there may be; idle ones leave first, and if all are in use a new key is refused. Not for \
                    a constant key.",
            why: "A flood of keys costs a few megabytes at most.",
        },
        Opt {
            name: "override",
            kind: Kind::Other("list of tables"),
            default: Default::Words("none"),
            about: "Other limits for single keys. Not for a constant key.",
            why: "Keys are equal unless you say so.",
        },
        Opt {
            name: "release",
            kind: Kind::Text("`\"body\"` or `\"headers\"`"),
            default: Default::Value("\"body\""),
            about: "When the slot comes back: when the body of the response has ended, or when its head is there.",
            why: "An upstream works until its last byte, and a stream counts while it streams.",
        },
        Opt {
            name: "headers",
            kind: Kind::Bare("`true` or `false`"),
            default: Default::Value("true"),
            about: "Whether responses carry `Concurrency-Limit` and `Concurrency-Remaining` and, with a rate, the rate limit \
                    headers.",
            why: "Clients that see how full it is slow down before they are refused.",
        },
        Opt {
            name: "refusal",
            kind: Kind::Other("table"),
            default: Default::Words("its defaults"),
            about: "What a refused request is told.",
            why: "SDKs in the field understand it.",
        },
        Opt {
            name: "connect_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"2s\""),
            about: "How long connecting to an upstream may take; then 504.",
            why: "Within one network a connection takes milliseconds: this allows for one lost packet.",
        },
        Opt {
            name: "response_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"60s\""),
            about: "How long an upstream may take until the head of its response is there; then 504.",
            why: "Slow actions get through, and one that hangs gives its slot back.",
        },
        Opt {
            name: "stream_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"60s\""),
            about: "How long a body, or an upgraded connection, may stand still in both directions before it is cut.",
            why: "A stream that lives says something within a minute, and a dead one must not hold its slot.",
        },
        Opt {
            name: "max_body",
            kind: Kind::Bare("integer, bytes, 1 to 1099511627776"),
            default: Default::Words("any number"),
            about: "The most bytes a request body may have; more is told 413.",
            why: "Bodies are streamed, not kept: a large one costs the gateway nothing.",
        },
    ],
};
