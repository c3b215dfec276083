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
            why: "There is no login, so nobody but this machine reaches it unless you say so.",
        },
        Opt {
            name: "flow_control_mode",
            kind: Kind::Text("`\"own\"` or `\"latest\"`"),
            default: Default::Words("what the store has; a new one `\"own\"`"),
            about: "Whose limits govern what waits for a flow-control key: each message's own, or the newest ones sent. It is kept in \
                    the store, for all servers; `flowgate keys latest` has one key differ.",
            why: "With its own limits, what waits is not changed by who sends next: a preview deployment loosens nothing.",
        },
    ],
};
