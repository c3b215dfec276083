//! The options of `[gateway]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static GATEWAY: Section = Section {
    path: "gateway",
    written: "[gateway]",
    about: "A reverse proxy that bounds what its routes let through. It accepts HTTP/1.1 and HTTP/2.",
    options: &[
        Opt {
            name: "listen",
            kind: Kind::Text("address and port"),
            default: Default::Value("\"127.0.0.1:8081\""),
            about: "Where to listen; port 0 takes any free one. Also `--gateway-listen`.",
            why: "Whether to open it to the network is your decision.",
        },
        Opt {
            name: "tls",
            kind: Kind::Other("table: `cert` and `key`"),
            default: Default::Words("plain HTTP"),
            about: "The certificate to speak TLS with.",
            why: "No certificate fits everybody.",
        },
        Opt {
            name: "workers",
            kind: Kind::Bare("integer, 1 to 1024"),
            default: Default::Words("one for each processor"),
            about: "How many threads serve.",
            why: "More threads than processors only take turns.",
        },
        Opt {
            name: "pin_workers",
            kind: Kind::Bare("`true` or `false`"),
            default: Default::Value("true"),
            about: "Whether each worker stays on its own processor, if there are as many workers as processors. A worker \
                that has to wait long for its processor, because other programs run there first, is unpinned for a minute.",
            why: "On a machine that does little else, the slowest of a hundred requests take two thirds of the time; next \
                to busy programs, they take no longer than without pinning.",
        },
        Opt {
            name: "max_connections",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("10000"),
            about: "How many connections may be open at once; further ones wait to be accepted.",
            why: "Below what most systems allow a process to open, and more than a single machine usually serves.",
        },
        Opt {
            name: "header_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"10s\""),
            about: "How long the head of a request may take to arrive; with TLS, the handshake too.",
            why: "A slow network manages that; a client that sends a byte at a time to hold a connection does not.",
        },
        Opt {
            name: "idle_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"60s\""),
            about: "How long a connection may stay open with no request under way.",
            why: "Long enough to spare clients a new connection for each request, and what most proxies do.",
        },
        Opt {
            name: "drain",
            kind: Kind::Text("time"),
            default: Default::Value("\"10s\""),
            about: "How long requests under way have to finish when the gateway stops.",
            why: "Most requests are done by then, and supervisors that give 30 seconds see a clean end.",
        },
        Opt {
            name: "trusted_proxies",
            kind: Kind::Other("list of networks, like `\"10.0.0.0/8\"`"),
            default: Default::Words("none"),
            about: "Proxies in front of the gateway whose `X-Forwarded-For` is trusted: the client is the first address \
                from the right that is not one of these. Not together with `proxy_hops`.",
            why: "A client can put anything it likes into a forwarding header.",
        },
        Opt {
            name: "proxy_hops",
            kind: Kind::Bare("integer, 1 to 32"),
            default: Default::Words("none: the client is the peer"),
            about: "How many proxies are in front of the gateway, if their addresses are not known: the client is that many \
                    entries of `X-Forwarded-For` from the right. Not together with `trusted_proxies`.",
            why: "As above.",
        },
        Opt {
            name: "upstreams",
            kind: Kind::Other("list of `http://` URLs, or `h2c://` for HTTP/2"),
            default: Default::Words("none"),
            about: "Where requests go on routes that have no `upstreams` of their own, and requests that no route matches.",
            why: "No upstream fits everybody.",
        },
        Opt {
            name: "unlisted",
            kind: Kind::Text("`\"pass\"` or `\"not-found\"`"),
            default: Default::Words("`\"pass\"` with `upstreams`, else `\"not-found\"`"),
            about: "What happens to a request that no route matches: it goes to `upstreams` without a limit, or gets 404.",
            why: "Upstreams set for everything are meant for everything; upstreams set for routes are meant only for those.",
        },
        Opt {
            name: "route",
            kind: Kind::Other("list of tables"),
            default: Default::Words("none"),
            about: "The routes.",
            why: "With `upstreams` alone, all requests pass without a limit.",
        },
    ],
};

pub(crate) static TLS: Section = Section {
    path: "gateway.tls",
    written: "tls = { … }",
    about: "In `[gateway]`. Paths are relative to the config file.",
    options: &[
        Opt {
            name: "cert",
            kind: Kind::Text("path"),
            default: Default::Required,
            about: "The certificates as PEM, the server's own first.",
            why: "",
        },
        Opt {
            name: "key",
            kind: Kind::Text("path"),
            default: Default::Required,
            about: "The private key as PEM.",
            why: "",
        },
    ],
};
