//! The list of all sections, in the order of the reference page.

use super::{
    CODEL, Default, GATEWAY, KEY, Kind, LINE, OVERRIDE, Opt, RATE, REFUSAL, ROUTE, SERVER, Section, TLS,
};

/// Every table that a file may have.
pub(crate) const SECTIONS: [&Section; 11] =
    [&FILE, &SERVER, &GATEWAY, &TLS, &ROUTE, &KEY, &RATE, &OVERRIDE, &LINE, &CODEL, &REFUSAL];

/// The file itself.
pub(crate) static FILE: Section = Section {
    path: "",
    written: "flowgate.toml",
    about: "A section that is not there has its defaults; without `[gateway]` there is no gateway.",
    options: &[
        Opt {
            name: "server",
            kind: Kind::Other("table"),
            default: Default::Words("its defaults"),
            about: "The server of `flowgate serve`.",
            why: "It is always there.",
        },
        Opt {
            name: "gateway",
            kind: Kind::Other("table"),
            default: Default::Words("none"),
            about: "The reverse proxy with limits.",
            why: "A proxy without routes or upstreams has nothing to do.",
        },
    ],
};
