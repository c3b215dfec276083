//! `flowgate simulate`: what limits would do to a workload, in virtual time.
//!
//! Reading order:
//!
//! - [`options`] is the question.
//! - [`workload`] says who comes when and for how long, drawn ([`random`], [`durations`]) or recorded
//!   ([`trace`]).
//! - [`engine`] plays the workload under one set of limits, and [`tally`] counts.
//! - [`report`] and [`plot`] tell; [`run`] does one after the other.
//! - [`real`] plays the same workload through a gate of the library, by the clock on the wall.
//!
//! Who may start is decided by the core's `Lane`, `Rate` and `Discipline` alone: there is no rule here.

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
