//! `flowgate completions`: what a shell completes.

use std::io::{self, Write};

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::failure::Failure;
use crate::cli::Cli;

/// Prints the script of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flowgate", &mut script);
    io::stdout().write_all(&script).map_err(Failure::Write)
}
