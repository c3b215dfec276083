//! Runs of workflows, as they are stored: every change of a run is one transaction, with the messages that
//! follow from it.
//!
//! Reading order:
//! - [`plan`] accepts requests that begin or continue a run. [`gather`] stores together what arrives together.
//! - [`close`] ends runs, and [`letter`] those that no delivery ends.
//! - [`wait`] has events and the runs that wait for them.
//! - [`chore`] is work left for later, as tasks of its own, so that a crash in between leaves nothing undone.
//! - [`again`] resumes and restarts failed runs, and [`told`] collects the log of a run.

mod again;
mod chore;
mod close;
mod gather;
mod letter;
mod plan;
mod refused;
mod told;
mod wait;

pub(crate) use again::Overrides;
pub(super) use chore::Chore;
pub(crate) use chore::{CHORE, Errand};
pub(crate) use close::Failing;
pub(crate) use gather::Gather;
pub(crate) use letter::Telling;
pub(crate) use plan::{InRun, Planned};
pub(crate) use refused::{FULL, RunRefused};
pub(crate) use told::RunFilter;
pub(crate) use wait::Notified;
