//! The options of `[server]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static SERVER: Section = Section {
    path: "server",
    written: "[server]",
    about: "The server of `flowgate serve`.",
    options: &[Opt {
        name: "listen",
        kind: Kind::Text("address and port"),
        default: Default::Value("\"127.0.0.1:8080\""),
        about: "Where to listen; port 0 takes any free one. `--listen` says the same.",
        why: "There is no login, so nobody but this machine reaches it unless you say so.",
    }],
};
