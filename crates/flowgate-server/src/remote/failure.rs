//! Why a command could not do what it was asked.

use std::io;

use flowgate_tasks::store::StoreError;

use crate::config::ConfigErrors;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    #[error("no server answers on {url}: {why}; is it running? name another with --url")]
    Unreachable { url: String, why: String },

    #[error(
        "the server requires a token: set --token or QSTASH_TOKEN; `flowgate token create` makes one, on a machine that \
         can open the server's store"
    )]
    NoToken,

    /// The server's own words.
    #[error("{0}")]
    Refused(String),

    #[error("{0} is not the address of a server; accepted: a URL like http://127.0.0.1:8080")]
    Url(String),

    #[error(transparent)]
    Config(ConfigErrors),

    #[error("cannot use the store {at}: {error}")]
    Store { at: String, error: StoreError },

    #[error("{0}: no such file; change to its folder, or name it with --store or FLOWGATE_STORE")]
    NoStore(String),

    #[error("cannot start: {0}")]
    Start(io::Error),

    #[error("cannot write: {0}")]
    Write(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        if matches!(self, Failure::Url(_) | Failure::Config(_)) { 2 } else { 1 }
    }
}
