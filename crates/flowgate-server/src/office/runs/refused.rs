//! Why something is not done with a run.

use std::fmt;

use flowgate_tasks::store::StoreError;

use crate::message::Fault;

/// What is said of a run that is full.
pub(crate) const FULL: &str = "the run has as many steps, waits or events as a run may have";

/// Why a run is not begun, or not changed.
#[derive(Debug)]
pub(crate) enum RunRefused {
    /// Something about the request cannot be.
    Fault(Fault),
    /// There is no such run, or it has ended.
    Over(String),
    /// It has as many steps, or keeps as much, as a run may.
    Full(String),
    Store(StoreError),
}

impl fmt::Display for RunRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunRefused::Fault(fault) => fault.fmt(f),
            RunRefused::Over(id) => write!(f, "the run {id:?} has ended, or there is none"),
            RunRefused::Full(_) => f.write_str(FULL),
            RunRefused::Store(error) => error.fmt(f),
        }
    }
}

impl From<Fault> for RunRefused {
    fn from(fault: Fault) -> Self {
        RunRefused::Fault(fault)
    }
}

impl From<StoreError> for RunRefused {
    fn from(error: StoreError) -> Self {
        RunRefused::Store(error)
    }
}
