//! Workflow runs: what their messages request, what a step is, and how runs are shown.
//!
//! Reading order:
//! - [`ask`] reads which part of a run a request is about.
//! - [`step`] reads steps and names them, so that each is stored once.
//! - [`written`] keeps one until it has what it waits for.
//! - [`run`] is what is kept of a run.
//! - [`inherit`] gives later messages the settings the run was started with, and [`own_limits`] gives a step its
//!   own limits.
//! - [`slice`] writes the steps that a delivery carries.
//! - [`waiting`] has events and the runs that wait for them.
//! - [`log`] writes the log of a run.
//!
//! All of it is pure: no store, no clock, no network.

mod ask;
mod inherit;
mod log;
mod own_limits;
mod run;
mod slice;
mod step;
mod waiting;
mod written;

pub(crate) use ask::{Ask, Kind, RUN_ID, headers_of, run_id};
pub(crate) use inherit::inherit;
pub(crate) use log::{RunLog, Seen, state as state_name};
pub(crate) use own_limits::{check_own_limits, own_limits};
pub(crate) use run::{CALLED, Failed, FailureCall, Invoker, RunHead, is_own_name, own_name, result_text};
pub(crate) use slice::{SDK_INIT, Slice, from_init, is_superseded, slice};
pub(crate) use step::{CallType, Kept, Step};
pub(crate) use waiting::{StoredEvent, Wait, WaitAsk, event_data, event_id};
pub(crate) use written::Written;
