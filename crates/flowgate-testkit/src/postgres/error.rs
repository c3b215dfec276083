//! Why there is no PostgreSQL to test with.

use std::io;

/// Why a private PostgreSQL could not be had, or did not do as it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its programs are not on this machine.
    #[error(
        "PostgreSQL is missing: neither a folder /usr/lib/postgresql/*/bin nor one on PATH has `initdb`, `postgres` and \
         `psql`; `./test` installs it, and so does `apt-get install postgresql`"
    )]
    Missing,
    /// We are root, PostgreSQL refuses to be, and there is nobody else to run it.
    #[error("root must not run PostgreSQL, and the user `nobody` or the program `setpriv` is missing")]
    NobodyElse,
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// One of its programs failed.
    #[error("{what}: {said}")]
    Failed {
        /// What was tried.
        what: String,
        /// What it said last.
        said: String,
    },
}

impl Error {
    /// For `map_err`: the system refused this.
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}
