//! The binary `flowgate`.
//!
//! Owns the process: reads the command line, runs the command, and turns a failure into a message and an exit code.

mod api;
mod cli;
mod clock;
mod commands;
mod config;
mod console;
mod delivery;
mod demo;
mod files;
mod gateway;
mod message;
mod metrics;
mod office;
mod progress;
mod remote;
mod serve;
mod signals;
mod simulate;
mod terminal;
mod top;
mod traces;
mod wire;
mod worker;
mod workflow;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = match Cli::read().command {
        Command::Serve(options) => commands::serve(&options),
        Command::Simulate(options) => simulate::simulate(&options).map_err(commands::Failure::from),
        Command::Demo(options) => demo::serve(&options).map_err(commands::Failure::from),
        Command::Publish(options) => remote::publish(&options).map_err(commands::Failure::from),
        Command::Keys(options) => remote::keys(&options).map_err(commands::Failure::from),
        Command::Top(options) => top::top(&options).map_err(commands::Failure::from),
        Command::Dlq(options) => remote::dlq(&options).map_err(commands::Failure::from),
        Command::Runs(options) => remote::runs(&options).map_err(commands::Failure::from),
        Command::Run(options) => remote::run(&options).map_err(commands::Failure::from),
        Command::Schedule(options) => remote::schedule(&options).map_err(commands::Failure::from),
        Command::Token(options) => remote::token(&options).map_err(commands::Failure::from),
        Command::Check(options) => commands::check(&options),
        Command::Reload(options) => commands::reload(&options),
        Command::Worker(options) => commands::worker(&options),
        Command::Send(options) => commands::send(options),
        Command::Queues(options) => commands::queues(options),
        Command::Tasks(options) => commands::tasks(options),
        Command::Task(options) => commands::task(&options),
        Command::Key(options) => commands::key(options),
        Command::Completions { shell } => commands::completions(shell),
        Command::Explain(options) => commands::explain(&options),
        Command::WorkerChild(options) => commands::worker_child(&options),
        Command::WorkerWarden => commands::worker_warden(),
        Command::Reference { page } => commands::reference(page),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_enough() => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may be left to read it, and then there is nobody to tell that either.
            let _ = writeln!(io::stderr(), "error: {}", terminal::plain_lines(&failure.to_string()));
            ExitCode::from(failure.exit_code())
        }
    }
}
