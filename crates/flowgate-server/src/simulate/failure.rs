//! Why there was nothing to simulate.
//!
//! Owns the messages and the exit codes: 2 where the command line or the trace has to change, 1 for the rest.

use std::{io, path::PathBuf};

use flowgate::OptionError;

use super::trace::TraceError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    #[error(transparent)]
    Option(#[from] OptionError),

    #[error("cannot read the trace {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },

    #[error("{}: {error}", path.display())]
    Trace { path: PathBuf, error: TraceError },

    #[error("cannot write {}: {error}", path.display())]
    Save { path: PathBuf, error: io::Error },

    #[error("cannot write: {0}")]
    Write(io::Error),

    #[error(
        "{arrivals} in {span:?} are {count:.0} arrivals; accepted: at most {most} for one run: shorten --for or lower --arrivals"
    )]
    TooMany { arrivals: String, span: std::time::Duration, count: f64, most: usize },

    #[error("nobody arrives: --arrivals {arrivals} is less than one in {span:?}; lengthen --for")]
    Nobody { arrivals: String, span: std::time::Duration },

    #[error(
        "option `--real` is set with {0} candidates; accepted: one `--max`, because each takes as long as the workload"
    )]
    Several(usize),

    #[error("cannot start: {0}")]
    Start(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Option(_)
            | Failure::Trace { .. }
            | Failure::TooMany { .. }
            | Failure::Nobody { .. }
            | Failure::Several(_) => 2,
            Failure::Read { .. } | Failure::Save { .. } | Failure::Write(_) | Failure::Start(_) => 1,
        }
    }
}
