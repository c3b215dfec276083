//! Why the demo could not start or go on.
//!
//! Owns the one-line messages and the exit codes: 2 where the command line has to change, 130 and
//! 143 after a second signal, 1 for the rest.

use std::{io, net::SocketAddr};

use flowgate::OptionError;

use crate::signals::Stop;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// Options that are fine one by one and not together.
    #[error(transparent)]
    Option(#[from] OptionError),

    #[error("cannot listen on {address}: {error}; choose another with --listen (port 0 takes any free one)")]
    Listen { address: SocketAddr, error: io::Error },

    #[error("cannot start: {0}")]
    Start(io::Error),

    #[error("stopped serving: {0}")]
    Serve(io::Error),

    /// By a second signal.
    #[error("{0}")]
    Interrupted(Stop),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Option(_) => 2,
            Failure::Interrupted(stop) => stop.exit_code(),
            Failure::Listen { .. } | Failure::Start(_) | Failure::Serve(_) => 1,
        }
    }
}
