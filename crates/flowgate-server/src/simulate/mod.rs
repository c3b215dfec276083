//! `flowgate simulate`: what limits would do to a workload, in virtual time.
//!
//! Reading order:
//! - [`options`] are the command's options.
//! - [`workload`] is what arrives when and for how long: drawn at random ([`random`], [`durations`]) or recorded
//!   ([`trace`]).
//! - [`engine`] plays the workload under one set of limits, and [`tally`] counts.
//! - [`report`] and [`plot`] show the result; [`run`] puts the steps together.
//! - [`real`] plays the same workload through a gate of the library, in real time. Only the core's `Lane`, `Rate`
//!   and `Discipline` decide who may start: there is no rule here.

mod durations;
mod engine;
mod failure;
mod options;
mod plot;
mod random;
mod real;
mod report;
mod run;
mod tally;
mod timeline;
mod trace;
mod workload;

pub(crate) use failure::Failure;
pub(crate) use options::{SIMULATE_HELP, SimulateOptions};
pub(crate) use run::simulate;
