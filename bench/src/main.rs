//! Flowgate beside its peers, in one run.
//!
//! `gates` measures the gates of the process, `http` the gateway and the layers over loopback, `routes` pipelines with
//! and without limits, `tasks` durable tasks on PostgreSQL, `shared` gates of a fleet, `flow` the flow-control server,
//! `workflow` runs of workflows on it. Each case runs ours and the peer in turn, round by round, and tells the medians,
//! their ratio and whether the goal holds; a goal that does not hold is told and fails nothing. Owns the order of the
//! cases and what becomes of the command line. It must never be a dependency of anything.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a table on stdout is the whole point of it")]

mod flow;
mod gates;
mod http;
mod keys;
mod machine;
mod measure;
mod options;
mod play;
mod report;
mod routes;
mod shared;
mod suite;
mod tasks;
mod workflow;

use std::{env, fs, io, path::Path, process::ExitCode};

use machine::Machine;
use options::{Command, HELP, Options, SuiteName};
use play::{Group, play_all};
use report::Frame;
use suite::Suite;

/// The groups of cases of the gates, in the order of the table.
const GATES: [fn(&mut Suite); 10] = [
    gates::enter::run,
    gates::service::run,
    gates::contended::run,
    gates::keyed::run,
    gates::flat::run,
    gates::memory::run,
    gates::rate::run,
    gates::features::run,
    gates::waiters::run,
    gates::refusal::run,
];

/// The same of the routes.
const ROUTES: [fn(&mut Suite); 2] = [routes::callers::run, routes::queued::run];

/// The same of the edge.
const HTTP: [Group<http::stage::Stage>; 7] = [
    http::proxied::run,
    http::refused::run,
    http::overload::run,
    http::idle::run,
    http::slow::run,
    http::layer::run,
    http::flood::run,
];

/// The same of durable tasks.
const TASKS: [Group<tasks::stage::Stage>; 9] = [
    tasks::drain::run,
    tasks::embedded::run,
    tasks::sends::run,
    tasks::latency::run,
    tasks::cap::run,
    tasks::cluster::run,
    tasks::flat::run,
    tasks::neighbour::run,
    tasks::steady::run,
];

/// The same of gates that a fleet shares.
const SHARED: [Group<shared::stage::Stage>; 5] =
    [shared::single::run, shared::trips::run, shared::throng::run, shared::crowd::run, shared::flat::run];

/// The same of the flow-control server.
const FLOW: [Group<flow::stage::Stage>; 4] =
    [flow::through::run, flow::latency::run, flow::keys::run, flow::memory::run];
/// The same of workflows.
const WORKFLOW: [Group<workflow::stage::Stage>; 2] = [workflow::steps::run, workflow::long::run];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match Command::parse(&words) {
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Command::Run(name, options)) => run(name, &options),
        Ok(Command::Play(cast)) => cast.play(),
        Ok(Command::Member(member)) => member.play(),
        Ok(Command::Line(lined)) => {
            lined.play();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn run(name: SuiteName, options: &Options) -> ExitCode {
    let machine = Machine::here();
    let mut suite = Suite::new(options);
    match name {
        SuiteName::Gates => GATES.iter().for_each(|group| group(&mut suite)),
        SuiteName::Routes => ROUTES.iter().for_each(|group| group(&mut suite)),
        SuiteName::Http => play_all(&HTTP, http::stage::Stage::set, &mut suite),
        SuiteName::Flow => play_all(&FLOW, flow::stage::Stage::set, &mut suite),
        SuiteName::Shared => play_all(&SHARED, shared::stage::Stage::set, &mut suite),
        SuiteName::Tasks => play_all(&TASKS, tasks::stage::Stage::set, &mut suite),
        SuiteName::Workflow => play_all(&WORKFLOW, workflow::stage::Stage::set, &mut suite),
    }
    if suite.is_empty() {
        let only = options.only.as_deref().unwrap_or_default();
        eprintln!("error: no case contains `{only}`; these are accepted, and every part of them:");
        suite.known().iter().for_each(|case| eprintln!("  {case}"));
        return ExitCode::from(2);
    }
    if !options.as_json {
        print!("\n{machine}\n\n{}", report::table(suite.cases()));
    }
    if !options.writes() {
        return ExitCode::SUCCESS;
    }
    let page = report::markdown(&Frame::of(name), &machine, suite.cases(), suite.remarks());
    let file = format!("{}.md", name.word());
    match write(&file, &page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: docs/figures/{file} could not be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(file: &str, text: &str) -> io::Result<()> {
    let figures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures");
    fs::create_dir_all(&figures)?;
    fs::write(figures.join(file), text)
}
