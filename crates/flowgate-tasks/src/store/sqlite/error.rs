//! What can go wrong in the middle of a job, before it is known what the job was.

use flowgate_core::OptionError;

use crate::{record::Unreadable, store::StoreError};

/// A failure, to be told with what was being done.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl Fault {
    pub(super) fn while_it(self, doing: &'static str) -> StoreError {
        match self {
            Fault::Sql(error) => StoreError::Database { doing, why: error.to_string() },
            Fault::Store(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error)
    }
}

impl From<OptionError> for Fault {
    fn from(error: OptionError) -> Self {
        Fault::Store(error.into())
    }
}

impl From<Unreadable> for Fault {
    fn from(error: Unreadable) -> Self {
        Fault::Store(error.into())
    }
}
