//! Why a command failed.
//!
//! Owns the exit codes: 2 where the command line or the configuration has to change, 130 and 143 after a second signal, 1 for
//! the rest.

use std::{io, net::SocketAddr};

use flowgate::OptionError;
use flowgate_tasks::{explain::quoted, store::StoreError};

use crate::{config::ConfigErrors, demo, remote, serve, signals::Stop, simulate};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigErrors),

    #[error(transparent)]
    Demo(#[from] demo::Failure),

    #[error(transparent)]
    Serve(#[from] serve::Failure),

    #[error(transparent)]
    Simulate(#[from] simulate::Failure),

    #[error(transparent)]
    Remote(#[from] remote::Failure),

    #[error("no server answers on {address}: {error}; is it running, and with this configuration?")]
    Unreachable { address: SocketAddr, error: io::Error },

    #[error("{0}")]
    NotReloaded(String),

    #[error("cannot write: {0}")]
    Write(io::Error),

    #[error("cannot read: {0}")]
    Read(io::Error),

    #[error(transparent)]
    Option(#[from] OptionError),

    #[error("{address}: {error}")]
    Open { address: String, error: StoreError },

    #[error("{0}: no such file; change to its folder, or name it with --store or FLOWGATE_STORE")]
    NoStore(String),

    #[error(transparent)]
    Store(StoreError),

    #[error("cannot run `{command}`: {error}")]
    Command { command: String, error: io::Error },

    #[error("cannot start: {0}")]
    Start(io::Error),

    /// A second signal.
    #[error("{0}")]
    Interrupted(Stop),

    #[error(
        "queue `{name}` is unknown; known queues: {}; to create it, add a [[queue]] to the configuration or run `flowgate \
         queues set {}`",
        known.join(", "),
        quoted(name)
    )]
    UnknownQueue { name: String, known: Vec<String> },

    #[error("no {0} in this store; to use another one, set --store or FLOWGATE_STORE")]
    Unknown(String),

    #[error("{0}")]
    NotDone(String),

    #[error("{option} is {value}: {why}")]
    Clash { option: &'static str, value: String, why: String },
}

impl Failure {
    /// Whether whoever read the answer has had enough of it, which is no failure.
    pub(crate) fn is_enough(&self) -> bool {
        let error = match self {
            Failure::Write(error)
            | Failure::Remote(remote::Failure::Write(error))
            | Failure::Simulate(simulate::Failure::Write(error)) => error,
            _ => return false,
        };
        error.kind() == io::ErrorKind::BrokenPipe
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Config(_)
            | Failure::Option(_)
            | Failure::UnknownQueue { .. }
            | Failure::Clash { .. }
            | Failure::Command { .. } => 2,
            Failure::Demo(failure) => failure.exit_code(),
            Failure::Serve(failure) => failure.exit_code(),
            Failure::Simulate(failure) => failure.exit_code(),
            Failure::Remote(failure) => failure.exit_code(),
            Failure::Interrupted(stop) => stop.exit_code(),
            Failure::Unreachable { .. }
            | Failure::NotReloaded(_)
            | Failure::Write(_)
            | Failure::Read(_)
            | Failure::Open { .. }
            | Failure::NoStore(_)
            | Failure::Store(_)
            | Failure::Start(_)
            | Failure::Unknown(_)
            | Failure::NotDone(_) => 1,
        }
    }
}

/// What cannot be is told as such, wherever it was found.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Option(error) => Failure::Option(error),
            error => Failure::Store(error),
        }
    }
}
