//! What happens at a gate, told as it happens.
//!
//! Owns the names of events and what each carries. The gate brings them to its listeners.

use std::{fmt, time::Duration};

use crate::{Key, Reason};

/// The names by which a gate is told from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ident {
    /// The gate's name.
    pub gate: String,
    /// Tells siblings apart.
    pub label: Option<String>,
    /// What the gate covers, where a surface says so (`route`, `step`).
    pub scope: Option<String>,
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.gate)?;
        self.label.as_ref().map_or(Ok(()), |label| write!(f, " [{label}]"))
    }
}

/// Something that happened at a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// At which gate.
    pub ident: &'a Ident,
    /// In which lane, where the gate has keys.
    pub key: Option<&'a Key>,
    /// What.
    pub what: What,
}

/// What happened. Each `Queued` is followed by one of `Acquired`, `Rejected` and `Left`; each `Acquired` by one `Released`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// An entrant joined the line.
    Queued {
        /// How many wait now, with it.
        depth: u32,
    },
    /// A pass was given.
    Acquired {
        /// How long it waited; zero if it did not.
        waited: Duration,
        /// How many slots of the lane are taken now, with its own.
        in_use: u32,
    },
    /// A pass came back.
    Released {
        /// How long it was out; `None` when no listener asked for times.
        held: Option<Duration>,
    },
    /// An entrant was refused.
    Rejected {
        /// Why.
        reason: Reason,
    },
    /// An entrant that waited gave up: its future was dropped.
    Left,
}

impl What {
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            What::Queued { .. } => "queued",
            What::Acquired { .. } => "acquired",
            What::Released { .. } => "released",
            What::Rejected { .. } => "rejected",
            What::Left => "left",
        }
    }
}
