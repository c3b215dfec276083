//! The options of `[tasks]`, `[[queue]]` and `[worker]`.

use super::{Default, Kind, Opt, Section};

pub(crate) static TASKS: Section = Section {
    path: "tasks",
    written: "[tasks]",
    about: "Durable work: how tasks are divided into queues, and how many may be under way. Caps are kept in the store, \
        so all workers obey the same ones: a worker writes those of its configuration if the store has none, and says so \
        if the store has others. `flowgate queues set` changes them live.",
    options: &[
        Opt {
            name: "queue_mode",
            kind: Kind::Text("`\"default\"` or `\"custom\"`"),
            default: Default::Value("\"default\""),
            about: "One queue, `default`, for everything; or the queues of `[[queue]]`.",
            why: "One queue is enough until something has to be served first, or needs a cap of its own.",
        },
        Opt {
            name: "cluster_wide_cap",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Words("none"),
            about: "How many tasks may be claimed or running at once, across all workers. Not together with \
                `prefetch_buffer`.",
            why: "Each worker is bounded by its `processes` anyway.",
        },
        Opt {
            name: "prefetch_buffer",
            kind: Kind::Bare("integer, 0 to 100000"),
            default: Default::Value("0"),
            about: "0: caps are hard, and count both claimed and running tasks. Above 0: caps are soft, count only \
                running tasks, and a worker claims up to this many tasks ahead. Requires `claim_lease_ms`. Tasks with a \
                key are claimed ahead only if the key is full, has no rate, and all its running tasks run in this worker.",
            why: "Tasks take different times, and one claimed ahead may wait behind a slow one while another worker is \
                idle.",
        },
        Opt {
            name: "claim_lease_ms",
            kind: Kind::Bare("integer, milliseconds, 100 to 86400000"),
            default: Default::Words("none"),
            about: "How long a task that was claimed ahead may wait before another worker may have it. Required with \
                `prefetch_buffer`, and not allowed without.",
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
            about: "The name that tasks are sent to. It must be unique.",
            why: "",
        },
        Opt {
            name: "priority",
            kind: Kind::Bare("integer, 1 to 1000000"),
            default: Default::Value("100"),
            about: "Lower is served first.",
            why: "At the end of the usual range: set a lower number for what has to go first.",
        },
        Opt {
            name: "max_concurrency",
            kind: Kind::Bare("integer, 1 to 1000000000"),
            default: Default::Words("none"),
            about: "How many of its tasks may be claimed or running at once, across all workers.",
            why: "Many queues exist only for their priority.",
        },
    ],
};

pub(crate) static WORKER: Section = Section {
    path: "worker",
    written: "[worker]",
    about: "`flowgate worker -- <command>`: a supervisor of processes that run tasks. Each option can also be given on \
        the command line: \
            `--processes`, `--queue`, `--max-claim-batch`, …",
    options: &[
        Opt {
            name: "name",
            kind: Kind::Text("one line of text"),
            default: Default::Words("the host's name"),
            about: "The worker's name, as `flowgate explain` shows it.",
            why: "Usually a host runs one worker.",
        },
        Opt {
            name: "processes",
            kind: Kind::Bare("integer, 1 to 10000"),
            default: Default::Words("one for each processor"),
            about: "How many child processes it runs, each one task at a time.",
            why: "Right for work that computes; for work that mostly waits, use more.",
        },
        Opt {
            name: "queues",
            kind: Kind::Text("list of names, or one text with the names separated by commas"),
            default: Default::Words("all"),
            about: "The queues it serves; `all` excludes `flowgate:messages`, the server's own.",
            why: "So that no queue waits for a worker that nobody started.",
        },
        Opt {
            name: "max_claim_batch",
            kind: Kind::Bare("integer, 0 to 10000"),
            default: Default::Value("0"),
            about: "How many tasks of one queue it claims in one pass; 0: as many as it has room for. A small batch \
                spreads a burst over the workers; a large one costs the store less.",
            why: "With hard caps a worker claims only what it can start at once.",
        },
        Opt {
            name: "max_claim_per_worker",
            kind: Kind::Bare("integer, 0 to 10000"),
            default: Default::Value("0"),
            about: "How many tasks it holds at most, whatever `processes` says; 0: `processes` plus `prefetch_buffer`.",
            why: "It is a safety valve, for when you need one.",
        },
        Opt {
            name: "lease",
            kind: Kind::Text("time, from 100ms to 1d"),
            default: Default::Value("\"15s\""),
            about: "How long the worker may be silent before its tasks go to other workers.",
            why: "Longer than a hiccup of the network or store, and short enough to wait for after a crash.",
        },
        Opt {
            name: "drain",
            kind: Kind::Text("time"),
            default: Default::Value("\"30s\""),
            about: "How long running tasks may go on after the worker is asked to stop.",
            why: "What most supervisors give a process before they kill it.",
        },
        Opt {
            name: "start_timeout",
            kind: Kind::Text("time"),
            default: Default::Value("\"10m\""),
            about: "How long a child process may take until it reads its first task. One that takes longer is killed and \
                restarted; the task uses up no attempt.",
            why: "Long enough to load a large model, and a process that hangs does not keep its place forever.",
        },
    ],
};
