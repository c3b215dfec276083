//! The command line of `flowgate top`.

use clap::{Args, ValueEnum};

use crate::remote::ServerOptions;

pub(crate) const TOP_HELP: &str = "\
Keys: w, f, d and n sort the keys by waiting, in flight, delayed or name; q quits.
If the output is not a terminal, one snapshot is printed; --json prints the server's answer.";

/// Watches a running server.
#[derive(Clone, Debug, Args)]
#[command(after_help = TOP_HELP)]
pub(crate) struct TopOptions {
    /// The order in which keys are shown at first
    #[arg(long, value_enum, default_value = "waiting")]
    pub(super) sort: Sort,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

/// An order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// The longest line first
    Waiting,
    /// The most in flight first
    InFlight,
    /// The most delayed first
    Delayed,
    /// By name
    Name,
}

impl Sort {
    /// The order that a key of the keyboard asks for.
    pub(super) fn of(key: u8) -> Option<Self> {
        match key {
            b'w' => Some(Sort::Waiting),
            b'f' => Some(Sort::InFlight),
            b'd' => Some(Sort::Delayed),
            b'n' => Some(Sort::Name),
            _ => None,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Sort::Waiting => "waiting",
            Sort::InFlight => "in flight",
            Sort::Delayed => "delayed",
            Sort::Name => "name",
        }
    }
}
