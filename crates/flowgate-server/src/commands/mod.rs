//! What the command line can be asked to do: one file for each command.
//!
//! A command takes its options, loads the configuration, and does the rest elsewhere.

mod check;
mod effective;
mod failure;
mod reference;
mod reload;
mod serve;
mod table;

pub(crate) use check::check;
pub(crate) use failure::Failure;
pub(crate) use reference::config_reference;
pub(crate) use reload::reload;
pub(crate) use serve::serve;
pub(crate) use table::Table;
