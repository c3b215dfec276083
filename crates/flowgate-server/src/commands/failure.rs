//! Why a command failed.
//!
//! Owns the exit codes: 2 where the command line or the configuration has to change, 1 for the rest.

use std::{io, net::SocketAddr};

use crate::{config::ConfigErrors, demo, remote, serve};

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
    Remote(#[from] remote::Failure),

    #[error("no server answers on {address}: {error}; is it running, and with this configuration?")]
    Unreachable { address: SocketAddr, error: io::Error },

    #[error("{0}")]
    NotReloaded(String),

    #[error("cannot write: {0}")]
    Write(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Config(_) => 2,
            Failure::Demo(failure) => failure.exit_code(),
            Failure::Serve(failure) => failure.exit_code(),
            Failure::Remote(failure) => failure.exit_code(),
            Failure::Unreachable { .. } | Failure::NotReloaded(_) | Failure::Write(_) => 1,
        }
    }
}
