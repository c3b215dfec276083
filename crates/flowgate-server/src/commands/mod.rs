//! The commands of the command line: one file for each.
//!
//! A command takes its options, loads the configuration, and does the rest elsewhere.

mod check;
mod completions;
mod effective;
mod explain;
mod failure;
mod key;
mod queues;
mod reference;
mod reload;
mod send;
mod serve;
mod store;
mod table;
mod task;
mod tasks;
mod work;
mod worker;

pub(crate) use check::check;
pub(crate) use completions::completions;
pub(crate) use explain::explain;
pub(crate) use failure::Failure;
pub(crate) use key::key;
pub(crate) use queues::queues;
pub(crate) use reference::reference;
pub(crate) use reload::reload;
pub(crate) use send::send;
pub(crate) use serve::serve;
pub(crate) use table::Table;
pub(crate) use task::task;
pub(crate) use tasks::tasks;
pub(crate) use worker::{worker, worker_child, worker_warden};
