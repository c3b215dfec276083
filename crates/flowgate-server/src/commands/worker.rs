//! `flowgate worker`: runs tasks in child processes.

use super::{
    failure::Failure,
    store::{block_on, open},
};
use crate::{
    cli::{ChildOptions, WorkerOptions},
    worker,
};

/// Works until a signal asks to stop.
pub(crate) fn worker(options: &WorkerOptions) -> Result<(), Failure> {
    let config = options.sources().load()?.config;
    // One thread, which lives as long as the process does: children are ended by the system when the thread that started them is.
    block_on(async {
        let store = open(&config.store).await?;
        worker::run(store, &config, &options.command).await
    })
}

/// Becomes the command of a worker.
pub(crate) fn worker_child(options: &ChildOptions) -> Result<(), Failure> {
    let error = worker::become_child(options);
    let command = options.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    Err(Failure::Command { command, error })
}

/// Watches over what a worker's children start.
pub(crate) fn worker_warden() -> Result<(), Failure> {
    worker::keep_watch().map_err(Failure::Start)
}
