//! `flowgate worker-warden`: ends what a worker's children started, when the worker is gone.
//!
//! The system ends a child with its worker ([`super::shim`]), and nothing that the child started: a command like `npm run` or
//! `uv run` starts the program that does the work. Left alone, that would go on with a task which another worker has by then.
//! So one small process is told the group of each child. When the worker dies, by whatever, the pipe between them ends, and all
//! groups that are left are killed. What leaves its group on purpose is out of reach.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    process::{ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

/// The worker's end of the pipe. Dropped with its last clone, the warden ends.
#[derive(Clone, Debug)]
pub(super) struct Warden(Arc<Mutex<ChildStdin>>);

impl Warden {
    pub(super) fn start() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        // Where the file was replaced since, the one that runs is meant.
        let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { program };
        // A group of its own: what is typed at the terminal is not for it.
        let mut command = Command::new(program);
        command.arg("worker-warden").process_group(0);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = process.stdin.take().ok_or_else(|| io::Error::other("a pipe is missing"))?;
        Ok(Warden(Arc::new(Mutex::new(pipe))))
    }

    /// There is such a group now.
    pub(super) fn begun(&self, group: Pid) {
        self.tell(&format!("+{}\n", group.as_raw_nonzero()));
    }

    /// It was ended: its number may become another's.
    pub(super) fn ended(&self, group: Pid) {
        self.tell(&format!("-{}\n", group.as_raw_nonzero()));
    }

    fn tell(&self, line: &str) {
        // Without a warden the children themselves still end with the worker.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

/// Keeps watch until the pipe ends, and kills what is left.
pub(crate) fn keep_watch() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _within = runtime.enter();
    // Whoever stops a whole service at once means the worker, and that ends this one.
    let ignored =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let _ignored = ignored.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    let mut groups = BTreeSet::new();
    for line in BufReader::new(io::stdin().lock()).lines() {
        let Ok(line) = line else { break };
        let number = line.get(1..).and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
        let Some(group) = number else { continue };
        match line.as_bytes()[0] {
            b'+' => drop(groups.insert(group.as_raw_nonzero())),
            _ => drop(groups.remove(&group.as_raw_nonzero())),
        }
    }
    for group in groups.into_iter().filter_map(|group| Pid::from_raw(group.get())) {
        // Most are gone with their first process.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}
