//! The options of `[[gateway.route]]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static ROUTE: Section = Section {
    path: "gateway.route",
    written: "[[gateway.route]]",
    about: "Of two routes that match a request, the more specific one takes it, whatever their order in the file: an exact \
            host before a wildcard before any host; then, segment by segment, a literal before a parameter before the rest.",
    options: &[
        Opt {
            name: "name",
            kind: Kind::Text("letters, digits, `.`, `_` and `-`, up to 64"),
            default: Default::Required,
            about: "What the route is called in refusals, figures and logs. It must be unique.",
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
            about: "Which paths it takes: `{tenant}` is one segment that is not empty, `{*rest}` everything that is left, \
                even nothing: `/v1/{*rest}` takes `/v1/` and not `/v1`. Paths are compared in their normal form (RFC \
                    3986): `%61` is `a`, and `.` and `..` are resolved.",
            why: "",
        },
        Opt {
            name: "methods",
            kind: Kind::Other("list of methods, like `\"POST\"`"),
            default: Default::Words("all"),
            about: "Which methods it takes.",
            why: "A limit that some methods can bypass is rarely intended.",
        },
        Opt {
            name: "upstreams",
            kind: Kind::Other("list of `http://` URLs, or `h2c://` for HTTP/2"),
            default: Default::Words("those of `[gateway]`"),
            about: "Where its requests go, in turn.",
            why: "Most gateways are in front of one service.",
        },
        Opt {
            name: "limit",
            kind: Kind::Bare("`true` or `false`"),
            default: Default::Value("true"),
            about: "Whether the route is limited. With `false` its requests pass, and no limit options may be set.",
            why: "A route is listed to be limited; `false` is for reads below a limited path.",
        },
        Opt {
            name: "key",
            kind: Kind::Other("`\"client\"`, or a table"),
            default: Default::Words("`{ constant = … }`, the name of the route"),
            about: "What partitions the route: each key has a lane of its own, with all of these limits.",
            why: "One lane is the bound that protects an upstream, whoever sends the requests.",
        },
        Opt {
            name: "missing_key",
            kind: Kind::Text("`\"shared\"` or `\"refuse\"`"),
            default: Default::Value("\"shared\""),
            about: "What happens to a request without the header of its key: it shares the lane of the empty key with all \
                others without it, or gets 400. Only where `key` is a header.",
            why: "Leaving out the header gains no extra slot and breaks no client.",
        },
        Opt {
            name: "max",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Value("30"),
            about: "How many may be in flight at once, in each lane.",
            why: "What upstreams with limits of their own usually allow one integration.",
        },
        Opt {
            name: "max_queue",
            kind: Kind::Bare("integer, 0 to 1000000000"),
            default: Default::Value("0"),
            about: "How many may wait in each lane's line; 0: no request waits; one that cannot start is refused at once.",
            why: "For a client that can retry, an immediate answer is worth more than a wait it cannot see.",
        },
        Opt {
            name: "queue_timeout",
            kind: Kind::Text("time"),
            default: Default::Words("as long as it takes"),
            about: "How long a request may wait in line. Only with `max_queue`.",
            why: "The line is bounded already, and a client that hangs up leaves it.",
        },
        Opt {
            name: "line",
            kind: Kind::Other("`\"fifo\"`, or a table: `codel`"),
            default: Default::Value("\"fifo\""),
            about: "In which order the line moves: first in, first out, or CoDel, which under lasting overload serves the \
                newest first and refuses those that have waited too long. `codel` only with `max_queue`.",
            why: "It is fair, and what people expect of a line.",
        },
        Opt {
            name: "rate",
            kind: Kind::Other("table"),
            default: Default::Words("no rate"),
            about: "How many may start per period, in each lane, beside `max`.",
            why: "Slots alone bound the load on an upstream.",
        },
        Opt {
            name: "max_keys",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("10000"),
            about: "How many lanes there may be; idle ones are removed first, and if all are in use a new key is refused. \
                Not for a constant key.",
            why: "A flood of keys costs a few megabytes at most.",
        },
        Opt {
            name: "override",
            kind: Kind::Other("list of tables"),
            default: Default::Words("none"),
            about: "Other limits for single keys. Not for a constant key.",
            why: "All keys are equal unless you say otherwise.",
        },
        Opt {
            name: "release",
            kind: Kind::Text("`\"body\"` or `\"headers\"`"),
            default: Default::Value("\"body\""),
            about: "When the slot comes back: when the body of the response has ended, or when its head has arrived.",
            why: "An upstream works until its last byte, and a stream counts while it streams.",
        },
        Opt {
            name: "headers",
            kind: Kind::Bare("`true` or `false`"),
            default: Default::Value("true"),
            about: "Whether responses carry `Concurrency-Limit` and `Concurrency-Remaining` and, with a rate, the rate limit \
                    headers.",
            why: "Clients that see how much is left slow down before they are refused.",
        },
        Opt {
            name: "refusal",
            kind: Kind::Other("table"),
            default: Default::Words("its defaults"),
            about: "The response to a refused request.",
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
            about: "How long an upstream may take until the head of its response has arrived; then 504.",
            why: "Slow actions get through, and one that hangs frees its slot.",
        },
        Opt {
            name: "stream_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"60s\""),
            about: "How long a body, or an upgraded connection, may be idle in both directions before it is cut.",
            why: "A live stream sends something within a minute, and a dead one must not hold its slot.",
        },
        Opt {
            name: "max_body",
            kind: Kind::Bare("integer, bytes, 1 to 1099511627776"),
            default: Default::Words("any number"),
            about: "The most bytes a request body may have; a larger one gets 413.",
            why: "Bodies are streamed, not kept: a large one costs the gateway nothing.",
        },
    ],
};
