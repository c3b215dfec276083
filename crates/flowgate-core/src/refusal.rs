//! Why there is no pass.
//!
//! Owns the reasons, their words, their codes and whether trying again can help. A refusal is a value, never a string.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    panic::Location,
    sync::Arc,
    time::Duration,
};

use crate::{Code, Ident, Key};

/// Why an entry was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// All slots are taken, and the entry would not wait.
    Busy,
    /// The line is full.
    QueueFull,
    /// It has waited as long as it may.
    QueueTimeout,
    /// The rate is used up, and the entry would not wait.
    Rate,
    /// The gate is paused, and the entry would not wait.
    Paused,
    /// The gate is closed.
    Closed,
    /// As many keys are in use as the gate allows.
    KeysFull,
    /// It would have waited for a slot that its own work holds.
    Reentrant,
    /// It asks for more slots than there are.
    TooHeavy,
    /// The store in which a fleet shares its limits does not answer.
    Unreachable,
}

impl Reason {
    /// All reasons, in the order of [`Reason::index`].
    pub const ALL: [Reason; 10] = [
        Reason::Busy,
        Reason::QueueFull,
        Reason::QueueTimeout,
        Reason::Rate,
        Reason::Paused,
        Reason::Closed,
        Reason::KeysFull,
        Reason::Reentrant,
        Reason::TooHeavy,
        Reason::Unreachable,
    ];

    /// Returns the word for it in messages, in events and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Busy => "busy",
            Reason::QueueFull => "queue-full",
            Reason::QueueTimeout => "queue-timeout",
            Reason::Rate => "rate",
            Reason::Paused => "paused",
            Reason::Closed => "closed",
            Reason::KeysFull => "keys-full",
            Reason::Reentrant => "re-entrant",
            Reason::TooHeavy => "too-heavy",
            Reason::Unreachable => "unreachable",
        }
    }

    /// Returns its place in [`Reason::ALL`], for counting.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns its error code.
    pub const fn code(self) -> Code {
        match self {
            Reason::Rate => Code::RateRefused,
            _ => Code::Refused,
        }
    }

    /// Whether the same entry may succeed later, with nothing else changed.
    pub const fn is_retryable(self) -> bool {
        !matches!(self, Reason::Closed | Reason::Reentrant | Reason::TooHeavy)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in your code that asked for a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Spot(&'static Location<'static>);

impl Spot {
    /// Returns the place of the caller.
    #[inline]
    #[track_caller]
    pub fn here() -> Self {
        Spot(Location::caller())
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.file(), self.0.line())
    }
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An entry that was refused, with what was seen at that moment: see [`Details`] for the fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(Box<Details>);

/// The fields of a [`Refusal`]. They are behind a pointer, so that a refusal is no larger than a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// The gate's name, label and scope.
    pub ident: Arc<Ident>,
    /// The key, if the gate has keys.
    pub key: Option<Key>,
    /// The reason.
    pub reason: Reason,
    /// How many slots were taken.
    pub in_use: u32,
    /// How many waited.
    pub waiting: u32,
    /// The most that may be in flight.
    pub max: Option<u32>,
    /// How long until trying again can help, if that is known.
    pub retry_after: Option<Duration>,
    /// For [`Reason::Reentrant`]: where the slot is held, and where it was asked for again.
    pub places: Option<(Spot, Spot)>,
}

impl Refusal {
    /// Creates a refusal of which only the reason is known yet.
    pub fn new(ident: Arc<Ident>, key: Option<Key>, reason: Reason) -> Self {
        Refusal(Box::new(Details {
            ident,
            key,
            reason,
            in_use: 0,
            waiting: 0,
            max: None,
            retry_after: None,
            places: None,
        }))
    }

    /// Returns its error code.
    pub fn code(&self) -> Code {
        self.reason.code()
    }

    /// Whether the same entry may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }
}

impl Deref for Refusal {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Refusal {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: gate {}", self.reason.code(), self.ident)?;
        if let Some(key) = &self.key {
            write!(f, " key {key:?}")?;
        }
        write!(f, " refused: {} ({} in use", self.reason, self.in_use)?;
        if let Some(max) = self.max {
            write!(f, " of {max}")?;
        }
        write!(f, ", {} waiting)", self.waiting)?;
        if let Some((held, asked)) = self.places {
            write!(f, "; held at {held}, asked for again at {asked}")?;
        }
        self.retry_after.map_or(Ok(()), |after| write!(f, "; retry after {after:?}"))
    }
}
