//! The options of `[tasks]`, `[[queue]]` and `[worker]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static TASKS: Section = Section {
    path: "tasks",
    written: "[tasks]",
    about: "Durable work: how tasks are divided into queues, and how many may be under way. Caps are kept in the \
        store, where all \
            workers find the same: a worker writes those of its configuration where the store has none, and says so where the \
            store has others. `flowgate queues set` changes them live.",
    options: &[
        Opt {
            name: "queue_mode",
            kind: Kind::Text("`\"default\"` or `\"custom\"`"),
            default: Default::Value("\"default\""),
            about: "One queue, `default`, for everything; or the queues of `[[queue]]`.",
            why: "One queue is enough until something has to be served first, or has a cap of its own.",
        },
        Opt {
            name: "cluster_wide_cap",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Words("none"),
            about: "How many tasks may be claimed or running at once, over all workers. Not together with `prefetch_buffer`.",
            why: "Each worker is bounded by its `processes` anyway.",
        },
        Opt {
            name: "prefetch_buffer",
            kind: Kind::Bare("integer, 0 to 100000"),
            default: Default::Value("0"),
            about: "0: caps are hard, what is claimed and what runs counts. Above 0 caps are soft: what runs counts, \
                and a worker \
                    claims up to so many tasks ahead. Wants `claim_lease_ms`. Of a key it claims ahead only where the \
                    key is full, \
                    has no rate, and all that runs of it runs there.",
            why: "Tasks take unequal times, and one claimed ahead waits behind a slow one while another worker is idle.",
        },
        Opt {
            name: "claim_lease_ms",
            kind: Kind::Bare("integer, milliseconds, 100 to 86400000"),
            default: Default::Words("none"),
            about: "How long a task that was claimed ahead may wait before another worker may have it. With `prefetch_buffer`, \
                    and only with it.",
            why: "With hard caps nothing is claimed ahead.",
        },
    ],
};

pub(crate) static QUEUE: Section = Section {
    path: "queue",
    written: "[[queue]]",
    about: "A queue, with `queue_mode = \"custom\"`.",
    options: &[
        Opt {
            name: "name",
            kind: Kind::Text("text of 1 to 512 bytes without commas"),
            default: Default::Required,
            about: "What tasks are sent to. No two have the same.",
            why: "",
        },
        Opt {
            name: "priority",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("100"),
            about: "Lower is served first.",
            why: "The last of what most people use: name what has to go before the rest.",
        },
        Opt {
            name: "max_concurrency",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Words("none"),
            about: "How many of its tasks may be claimed or running at once, over all workers.",
            why: "A queue is often there for its priority alone.",
        },
    ],
};

pub(crate) static WORKER: Section = Section {
    path: "worker",
    written: "[worker]",
    about: "`flowgate worker -- <command>`: a supervisor of processes that run tasks. Each option is one of the \
        command line, too: \
            `--processes`, `--queue`, `--max-claim-batch`, …",
    options: &[
        Opt {
            name: "name",
            kind: Kind::Text("text of one line"),
            default: Default::Words("the host's name"),
            about: "A name for people: `flowgate explain` says who holds a slot.",
            why: "Usually there is one on a host.",
        },
        Opt {
            name: "processes",
            kind: Kind::Bare("integer, 1 to 10000"),
            default: Default::Words("one for each processor"),
            about: "How many child processes it runs, each one task at a time.",
            why: "Right for work that computes; work that waits for others bears more.",
        },
        Opt {
            name: "queues",
            kind: Kind::Text("list of names, or one text with commas between them"),
            default: Default::Words("all"),
            about: "The queues it serves; all is all but `flowgate:messages`, the server's own.",
            why: "Nothing is left waiting for a worker that nobody started.",
        },
        Opt {
            name: "max_claim_batch",
            kind: Kind::Bare("integer, 0 to 10000"),
            default: Default::Value("0"),
            about: "How many tasks of one queue it claims in one pass; 0: as many as it has room for. A small one \
                spreads a burst \
                    over the workers, a large one costs the store less.",
            why: "With hard caps a worker claims only what it runs at once.",
        },
        Opt {
            name: "max_claim_per_worker",
            kind: Kind::Bare("integer, 0 to 10000"),
            default: Default::Value("0"),
            about: "How many tasks it holds at most, whatever `processes` says; 0: `processes`, and `prefetch_buffer` more.",
            why: "It is a safety valve, to be turned when needed.",
        },
        Opt {
            name: "lease",
            kind: Kind::Text("time, from 100ms to 1d"),
            default: Default::Value("\"15s\""),
            about: "How long it may be silent before its tasks are given to others.",
            why: "Longer than a hiccup of network or store, and short enough to wait for after a crash.",
        },
        Opt {
            name: "drain",
            kind: Kind::Text("time"),
            default: Default::Value("\"30s\""),
            about: "How long running tasks may go on when it is told to stop.",
            why: "What most supervisors give a process before they kill it.",
        },
        Opt {
            name: "start_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"10m\""),
            about: "How long a child process may take until it reads its first task. One that takes longer is ended \
                and started again; the \
                    task uses up no attempt.",
            why: "Long enough to load a large model, and no process that hangs keeps its seat for ever.",
        },
    ],
};
