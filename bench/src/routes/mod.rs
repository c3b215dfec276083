//! Routes with limits beside routes without: one file for each group of cases.

pub(crate) mod callers;
pub(crate) mod queued;
