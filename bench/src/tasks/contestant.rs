//! Who takes part, and what each of them has by way of limits.
//!
//! A contestant is a name that one of two programs knows: `bench/peers-tasks`, in Rust, or `bench/peers-node`. Ours is one
//! more of the first kind. It takes part when it stands in [`ROLL`] and in that program's `peers/roll.rs`; until then the
//! cases are told without it.

/// The name of ours.
pub(super) const OURS: &str = "flowgate";

/// One that takes part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) store: Store,
    /// What holds while it drains with limits, if it has any.
    pub(super) wide: Option<&'static str>,
    /// What it has that is nearest to two at once for each key, if anything.
    pub(super) cap: Option<Cap>,
    /// It does one task while the quickest do so many. The slow ones get less to do, so that the run comes to an end.
    pub(super) slowness: u32,
    /// The same with its limits.
    pub(super) limited_slowness: u32,
}

/// Which program knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Rust,
    Node,
}

/// Where its tasks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Postgres,
    Redis,
}

/// A cap for each key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cap {
    pub(super) max: u32,
    pub(super) what: &'static str,
}

const NODE: Contestant = Contestant { program: Program::Node, ..RUST };
const RUST: Contestant = Contestant {
    name: "",
    program: Program::Rust,
    store: Store::Postgres,
    wide: None,
    cap: None,
    slowness: 1,
    limited_slowness: 1,
};

/// All of them.
pub(super) const ROLL: [Contestant; 7] = [
    Contestant {
        name: OURS,
        wide: Some("cluster, queue and 100 keys"),
        cap: Some(Cap { max: 2, what: "a key" }),
        ..RUST
    },
    Contestant {
        name: "horsies",
        wide: Some("cluster_wide_cap"),
        cap: Some(Cap { max: 2, what: "a queue for each key" }),
        slowness: 20,
        limited_slowness: 20,
        ..RUST
    },
    Contestant {
        name: "graphile_worker",
        wide: Some("one at a time for each of 100 queues"),
        cap: Some(Cap { max: 1, what: "one at a time for each queue" }),
        ..RUST
    },
    Contestant { name: "apalis-postgres", ..RUST },
    Contestant {
        name: "graphile-worker",
        wide: Some("one at a time for each of 100 queues"),
        cap: Some(Cap { max: 1, what: "one at a time for each queue" }),
        limited_slowness: 10,
        ..NODE
    },
    Contestant {
        name: "pg-boss",
        wide: Some("groupConcurrency, 100 groups"),
        cap: Some(Cap { max: 2, what: "groupConcurrency" }),
        ..NODE
    },
    Contestant {
        name: "bullmq",
        store: Store::Redis,
        wide: Some("global concurrency"),
        cap: Some(Cap { max: 2, what: "global concurrency, a queue for each key" }),
        ..NODE
    },
];

impl Contestant {
    /// Ours, when it takes part.
    pub(super) fn ours() -> Option<Self> {
        ROLL.into_iter().find(Self::is_ours)
    }

    pub(super) fn is_ours(&self) -> bool {
        self.name == OURS
    }
}
