//! The options of `[gateway]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static GATEWAY: Section = Section {
    path: "gateway",
    written: "[gateway]",
    about: "A reverse proxy that bounds what its routes let through. HTTP/1.1 and HTTP/2 come in.",
    options: &[
        Opt {
            name: "listen",
            kind: Kind::Text("address and port"),
            default: Default::Value("\"127.0.0.1:8081\""),
            about: "Where to listen; port 0 takes any free one. `--gateway-listen` says the same.",
            why: "Opening a door to the network is yours to decide.",
        },
        Opt {
            name: "tls",
            kind: Kind::Other("table: `cert` and `key`"),
            default: Default::Words("plain HTTP"),
            about: "The certificate to speak TLS with.",
            why: "There is no certificate that would fit everybody.",
        },
        Opt {
            name: "workers",
            kind: Kind::Bare("integer, 1 to 1024"),
            default: Default::Words("one for each processor"),
            about: "How many threads serve.",
            why: "More than there are processors only take turns.",
        },
        Opt {
            name: "pin_workers",
            kind: Kind::Bare("`true` or `false`"),
            default: Default::Value("true"),
            about: "Whether each worker stays on a processor of its own, where there are as many of one as of the other. One \
                that has to wait long for it, because other programs are run there first, is let go for a minute.",
            why: "On a machine that does little else, the slowest of a hundred requests then take two thirds of the time, and \
                beside busy programs no longer than elsewhere.",
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
            about: "Proxies before the gateway whose `X-Forwarded-For` is believed: the client is the first address from the \
                    right that is none of these. Not together with `proxy_hops`.",
            why: "A forwarding header that nobody vouches for is whatever the client likes it to be.",
        },
        Opt {
            name: "proxy_hops",
            kind: Kind::Bare("integer, 1 to 32"),
            default: Default::Words("none: the client is the peer"),
            about: "How many proxies stand before the gateway, where their addresses are not known: the client is that many \
                    entries of `X-Forwarded-For` from the right. Not together with `trusted_proxies`.",
            why: "As above.",
        },
        Opt {
            name: "upstreams",
            kind: Kind::Other("list of `http://` URLs, or `h2c://` for HTTP/2"),
            default: Default::Words("none"),
            about: "Where requests go on routes that have no `upstreams` of their own, and requests that no route matches.",
            why: "There is no upstream that would fit everybody.",
        },
        Opt {
            name: "unlisted",
            kind: Kind::Text("`\"pass\"` or `\"not-found\"`"),
            default: Default::Words("`\"pass\"` with `upstreams`, else `\"not-found\"`"),
            about: "What becomes of a request that no route matches, however leniently its path is read: it goes to `upstreams` \
                without a limit, or is told 404.",
            why: "Upstreams that are named for everything are meant for everything; those that are named for routes, \
                for these only.",
        },
        Opt {
            name: "route",
            kind: Kind::Other("list of tables"),
            default: Default::Words("none"),
            about: "The routes.",
            why: "With `upstreams` alone, all pass without a limit.",
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
