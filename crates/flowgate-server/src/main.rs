//! The binary `flowgate`.
//!
//! Owns the process: reads the command line, runs the command, and turns a failure into words and an exit code.

mod api;
mod cli;
mod clock;
mod commands;
mod config;
mod delivery;
mod demo;
mod gateway;
mod message;
mod office;
mod serve;
mod signals;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;

use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(options) => commands::serve(&options),
        Command::Demo(options) => demo::serve(&options).map_err(commands::Failure::from),
        Command::Check(options) => commands::check(&options),
        Command::Reload(options) => commands::reload(&options),
        Command::ConfigReference => commands::config_reference(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may be left to read it, and then there is nobody to tell that either.
            let _ = writeln!(io::stderr(), "error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
