//! The list of all sections, in the order of the reference page.

use super::{
    CODEL, Default, GATEWAY, KEY, Kind, LINE, OVERRIDE, Opt, QUEUE, RATE, REFUSAL, ROUTE, SERVER, Section,
    TASKS, TLS, WORKER,
};

/// Every table that a file may have.
pub(crate) const SECTIONS: [&Section; 14] = [
    &FILE, &SERVER, &GATEWAY, &TLS, &ROUTE, &KEY, &RATE, &OVERRIDE, &LINE, &CODEL, &REFUSAL, &TASKS, &QUEUE,
    &WORKER,
];

/// The file itself.
pub(crate) static FILE: Section = Section {
    path: "",
    written: "flowgate.toml",
    about: "A missing section has its defaults; without `[gateway]` there is no gateway.",
    options: &[
        Opt {
            name: "store",
            kind: Kind::Text("`sqlite:` and a path, or a `postgres://` URL"),
            default: Default::Value("\"sqlite:flowgate.db\""),
            about: "Where tasks wait. A path in the file is relative to the file, and so is the default if there is a \
                file; on the command line and in the environment it is relative to the working directory. Also `--store`. \
                A server and a worker print the whole path when they start.",
            why: "With one file nobody has to run a database; a fleet shares one PostgreSQL.",
        },
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
        Opt {
            name: "tasks",
            kind: Kind::Other("table"),
            default: Default::Words("its defaults"),
            about: "Durable work.",
            why: "It costs nothing until something is sent.",
        },
        Opt {
            name: "queue",
            kind: Kind::Other("list of tables"),
            default: Default::Words("none"),
            about: "The queues.",
            why: "With `queue_mode = \"default\"` there is exactly one queue, and nothing to configure.",
        },
        Opt {
            name: "worker",
            kind: Kind::Other("table"),
            default: Default::Words("its defaults"),
            about: "`flowgate worker`.",
            why: "The command to run is given when the worker is started.",
        },
    ],
};
