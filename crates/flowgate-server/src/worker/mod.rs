//! A worker that runs tasks in child processes of any language.
//!
//! Reading order:
//!
//! - [`run`] is the worker from its start to its end. [`caps`] brings the configuration's caps and the store's
//!   together.
//! - [`pool`] has a seat for each child process. [`child`] is one process, and [`line`] its two lines for a task: a
//!   question and an answer.
//! - [`log`] passes on what all of them write to standard error.
//! - [`shim`] makes sure that a child does not outlive its worker, and [`warden`] that the processes started by the
//!   child do not either.

mod caps;
mod child;
mod command;
mod known;
mod line;
mod log;
mod pool;
mod run;
mod shim;
mod warden;

pub(crate) use known::queue as known_queue;
pub(crate) use run::run;
pub(crate) use shim::become_child;
pub(crate) use warden::keep_watch;
