//! Why something is not done with a run.

use flowgate_tasks::store::StoreError;

use crate::message::Fault;

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
