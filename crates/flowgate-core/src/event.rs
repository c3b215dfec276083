//! What happens at a gate, told as it happens.
//!
//! Owns the names of events and what each carries. The gate brings them to its listeners.

use std::{fmt, time::Duration};

use crate::{Key, Reason};

/// The names that tell one gate from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ident {
    /// The gate's name.
    pub gate: String,
    /// Tells it from others of the same name.
    pub label: Option<String>,
    /// What the gate covers, if it was told (`route`, `step`).
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
    /// The gate.
    pub ident: &'a Ident,
    /// The lane, if the gate has keys.
    pub key: Option<&'a Key>,
    /// What happened.
    pub what: What,
}

/// What happened. Each `Queued` is followed by one of `Acquired`, `Rejected` and `Left`; each `Acquired` by one `Released`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// An entry joined the line.
    Queued {
        /// How many wait now, including this one.
        depth: u32,
    },
    /// A pass was given.
    Acquired {
        /// How long it waited; zero if it did not.
        waited: Duration,
        /// How many slots of the lane are taken now, including its own.
        in_use: u32,
    },
    /// A pass came back.
    Released {
        /// How long it was out; `None` if no listener asked for times.
        held: Option<Duration>,
    },
    /// An entry was refused.
    Rejected {
        /// The reason.
        reason: Reason,
    },
    /// A waiting entry gave up: its future was dropped.
    Left,
}

impl What {
    /// Returns the word for it.
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
