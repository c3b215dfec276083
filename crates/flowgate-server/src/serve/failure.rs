//! Why the server could not start or go on.
//!
//! Owns the one-line messages and the exit codes: 2 where the command line has to change, 130 and
//! 143 after a second signal, 1 for the rest.

use std::{io, net::SocketAddr};

use flowgate::OptionError;
use flowgate_tasks::store::StoreError;

use super::parts::Part;
use crate::{delivery::TrustError, gateway, signals::Stop};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    #[error(transparent)]
    Option(#[from] OptionError),

    #[error(
        "--dev works only on loopback: its token is public, and {0} can be reached from other machines; listen on \
         127.0.0.1, or leave --dev out"
    )]
    Exposed(SocketAddr),

    #[error("cannot listen on {address}: {error}; choose another with --listen (port 0 takes any free one)")]
    Listen { address: SocketAddr, error: io::Error },

    #[error("cannot use the store {at}: {error}")]
    Store { at: String, error: StoreError },

    #[error("cannot start: {0}")]
    Start(io::Error),

    #[error("stopped delivering: {0}")]
    Deliver(StoreError),

    #[error("{0} ended by itself")]
    Ended(Part),

    /// By a second signal.
    #[error("{0}")]
    Interrupted(Stop),

    #[error("server.egress_ca: {0}")]
    Trust(#[from] TrustError),

    #[error(transparent)]
    Gateway(#[from] gateway::Failure),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Option(_) | Failure::Exposed(_) | Failure::Trust(_) => 2,
            Failure::Interrupted(stop) => stop.exit_code(),
            _ => 1,
        }
    }
}
