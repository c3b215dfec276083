//! Whether the store takes what is written, as it answered last.
//!
//! Owns the one bit. A store may answer every question and take nothing more: its disk is full, or it is a
//! replica. Nothing is asked of it for this: a server writes all the time, the renewals of its lease if
//! nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use flowgate_tasks::store::StoreError;

use crate::office::{store_failed, store_is_written_again};

/// What became of the latest write of this process.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    has_failed: AtomicBool,
}

impl Writes {
    /// Whether it failed.
    pub(super) fn have_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn answered<T>(&self, answer: &Result<T, StoreError>) {
        let has_failed = match answer {
            Ok(_) => false,
            Err(StoreError::Database { .. }) => true,
            // What was asked for cannot be: that says nothing of the store.
            Err(_) => return,
        };
        if has_failed == self.have_failed()
            || self.has_failed.swap(has_failed, Ordering::Relaxed) == has_failed
        {
            return;
        }
        match answer {
            Err(error) => store_failed(error),
            Ok(_) => store_is_written_again(),
        }
    }
}
