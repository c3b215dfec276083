//! `flowgate worker-child`: becomes the command of a worker, in such a way that it does not outlive the worker.
//!
//! A worker that is killed cannot end its children, and its tasks are given to others when its lease runs out: without this, a
//! task would then run twice at once.

use std::{io, os::unix::process::CommandExt as _, process::Command};

use crate::{cli::ChildOptions, files};

/// Becomes the command. Returns only if it cannot.
pub(crate) fn become_child(options: &ChildOptions) -> io::Error {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return error.into();
        }
        // It may have gone before it could be heard.
        if getppid().map(|parent| parent.as_raw_nonzero().get().cast_unsigned()) != Some(options.parent) {
            return io::Error::other("the worker is gone");
        }
    }
    if let Some(files) = options.files {
        files::lower(files);
    }
    Command::new(&options.command[0]).args(&options.command[1..]).exec()
}
