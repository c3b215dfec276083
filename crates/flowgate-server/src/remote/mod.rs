//! Commands that talk to a running server, only through its API; and tokens, which have to be created before
//! anybody can.
//!
//! Reading order: [`options`] is the command line; [`client`] asks the server; the rest is one file for each command.

mod client;
mod dlq;
mod failure;
mod keys;
mod options;
mod publish;
mod runs;
mod schedule;
mod token;

pub(crate) use client::Server;
pub(crate) use dlq::dlq;
pub(crate) use failure::Failure;
pub(crate) use keys::keys;
pub(crate) use options::{
    DlqOptions, KeysOptions, PublishOptions, RunOptions, RunsOptions, ScheduleOptions, ServerOptions,
    TokenOptions,
};
pub(crate) use publish::publish;
pub(crate) use runs::{run, runs};
pub(crate) use schedule::schedule;
pub(crate) use token::token;
