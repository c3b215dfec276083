//! The options of `[server]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static SERVER: Section = Section {
    path: "server",
    written: "[server]",
    about: "The server of `flowgate serve`.",
    options: &[
        Opt {
            name: "listen",
            kind: Kind::Text("address and port"),
            default: Default::Value("\"127.0.0.1:8080\""),
            about: "Where to listen; port 0 takes any free one. Also `--listen`.",
            why: "Connections are not encrypted: only this machine can connect unless you change it.",
        },
        Opt {
            name: "max_requests",
            kind: Kind::Bare("integer, 1 to 100000"),
            default: Default::Value("1024"),
            about: "How many API requests may be under way at once. Four times as many may wait, for up to 10 s; any \
                beyond that get 503 at once.",
            why: "Enough to keep the store busy, and a bound on the memory that a flood of requests can hold.",
        },
        Opt {
            name: "max_connections",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("10000"),
            about: "How many connections to the API and the console may be open at once; further ones wait to be accepted.",
            why: "More than a fleet of clients keeps open, and a bound on what idle connections take.",
        },
        Opt {
            name: "idle_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"60s\""),
            about: "How long a connection may take until the head of its next request has arrived, and how long its client \
                may read nothing of what it is sent.",
            why: "Long enough to spare clients a new connection for each request; a client that sends a byte at a time, \
                or never reads, to hold a connection loses it.",
        },
        Opt {
            name: "flow_control_mode",
            kind: Kind::Text("`\"own\"` or `\"latest\"`"),
            default: Default::Words("what the store has; `\"own\"` in a new store"),
            about: "Whose limits govern what waits for a flow-control key: each message's own, or the newest ones \
                sent. It is kept in the store, for all servers; `flowgate keys latest` changes it for one key.",
            why: "With own limits, a message sent later changes nothing for those that already wait, so a preview \
                deployment cannot loosen limits.",
        },
        Opt {
            name: "egress_proxy",
            kind: Kind::Text("`http://` URL of a proxy, with a user and a password if it requires them"),
            default: Default::Words("none: deliveries go directly"),
            about: "The HTTP proxy that deliveries go through: https through a tunnel (CONNECT), http by asking it for \
                the whole URL. Also `--egress-proxy`.",
            why: "Most networks let a server connect out; one that does not has a proxy.",
        },
        Opt {
            name: "egress_ca",
            kind: Kind::Text("path"),
            default: Default::Words("only the public authorities"),
            about: "Certificates, as PEM, that deliveries trust in addition to the public authorities, for endpoints with \
                certificates of your own. A path in the file is relative to the file.",
            why: "A private authority should be trusted only if you say so.",
        },
    ],
};
