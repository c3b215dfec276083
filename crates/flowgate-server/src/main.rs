//! The binary `flowgate`.
//!
//! Owns the process: reads the command line, runs the command, and turns a failure into words and an exit code.

mod cli;
mod commands;
mod config;
mod demo;
mod gateway;
mod signals;
mod worker;

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
        Command::Check(options) => commands::check(&options),
        Command::Reload(options) => commands::reload(&options),
        Command::Worker(options) => commands::worker(&options),
        Command::Send(options) => commands::send(options),
        Command::Queues(options) => commands::queues(options),
        Command::Tasks(options) => commands::tasks(options),
        Command::Task(options) => commands::task(&options),
        Command::Key(options) => commands::key(options),
        Command::Explain(options) => commands::explain(&options),
        Command::WorkerChild(options) => commands::worker_child(&options),
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
