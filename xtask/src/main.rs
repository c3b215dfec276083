//! `cargo xtask`: the house rules as a test, and the doors to loom and the benchmarks.
//!
//! Uses the standard library alone, so that it builds in a moment and the rules hold from the first day.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks to its terminal")]

mod cargo;
mod command;
mod docs;
mod offence;
mod read;
mod snippets;
mod tidy;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use crate::command::Command;
use crate::offence::Offence;
use crate::read::Tree;

const MISUNDERSTOOD: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let command = match Command::parse(&words) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("error: {error}\n\n`cargo xtask help` tells more.");
            return ExitCode::from(MISUNDERSTOOD);
        }
    };
    run(&command, &root()).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run(command: &Command, root: &Path) -> io::Result<ExitCode> {
    match command {
        Command::Tidy => Ok(report("tidy", &tidy::tidy(&Tree::load(root)?))),
        Command::Snippets => Ok(report("snippets", &snippets::check(&Tree::load(root)?))),
        Command::Docs => docs::write(root).map(exit_code),
        Command::Loom(options) => cargo::loom(root, options).map(exit_code),
        Command::Soak(length) => cargo::soak(root, length.as_deref()).map(exit_code),
        Command::Bench(words) => cargo::bench(root, words).map(exit_code),
        Command::Help => {
            print!("{}", command::HELP);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn report(name: &str, offences: &[Offence]) -> ExitCode {
    for offence in offences {
        println!("{offence}");
    }
    match offences.len() {
        0 => println!("{name}: all well"),
        1 => eprintln!("{name}: 1 offence"),
        count => eprintln!("{name}: {count} offences"),
    }
    if offences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    // No code means that a signal ended it.
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The root of the workspace: the folder above xtask.
fn root() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&xtask).join("..")
}
