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
            about: "Where to listen; port 0 takes any free one. `--listen` says the same.",
            why: "What comes in is not encrypted: nobody but this machine reaches it unless you say so.",
        },
        Opt {
            name: "max_requests",
            kind: Kind::Bare("integer, 1 to 100000"),
            default: Default::Value("1024"),
            about: "How many requests of the API are under way at once. Four times as many may wait, for 10 s; what comes beyond \
                    that is told 503 at once.",
            why: "Enough to keep the store busy, and a bound for what a flood can hold in memory.",
        },
        Opt {
            name: "max_connections",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("10000"),
            about: "How many connections to the API and the console may be open at once; further ones wait to be accepted.",
            why: "More than a fleet of clients keeps open, and a bound for what idle ones take.",
        },
        Opt {
            name: "idle_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"60s\""),
            about: "How long a connection may take until the head of its next request is there.",
            why: "Long enough to spare clients a new connection for each request; a client that sends a byte at a time \
                to hold a connection \
                  loses it.",
        },
        Opt {
            name: "flow_control_mode",
            kind: Kind::Text("`\"own\"` or `\"latest\"`"),
            default: Default::Words("what the store has; a new one `\"own\"`"),
            about: "Whose limits govern what waits for a flow-control key: each message's own, or the newest ones \
                sent. It is kept in \
                    the store, for all servers; `flowgate keys latest` has one key differ.",
            why: "With own limits, a message that is sent later changes nothing for those that wait: a preview \
                deployment loosens nothing.",
        },
        Opt {
            name: "egress_proxy",
            kind: Kind::Text("`http://` URL of a proxy, with a user and a password if it wants them"),
            default: Default::Words("none: deliveries go straight"),
            about: "The HTTP proxy that deliveries go by: https through a tunnel (CONNECT), http by asking it for the whole URL. \
                    `--egress-proxy` says the same.",
            why: "Most networks let a server out; a network that does not has a proxy.",
        },
        Opt {
            name: "egress_ca",
            kind: Kind::Text("path"),
            default: Default::Words("the public authorities alone"),
            about: "Certificates, as PEM, that deliveries believe beside those of the public authorities: for endpoints with \
                    certificates of your own. A path in the file is relative to the file.",
            why: "Nobody else's private authority is to be trusted unasked.",
        },
    ],
};
