//! What a worker runs, found before anything starts.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::files;

/// A program that is there, and its arguments.
#[derive(Clone, Debug)]
pub(super) struct Program {
    words: Vec<OsString>,
    /// How many files the program may have open: as many as it would have without the worker.
    files: Option<u64>,
    start_timeout: Duration,
}

impl Program {
    /// The program of this command line, which may take so long until it reads its first task.
    pub(super) fn find(words: &[OsString], start_timeout: Duration) -> Result<Self, io::Error> {
        let name = words.first().expect("the command line needs at least one word");
        find(name)?;
        // Each process has three pipes here.
        let files = if cfg!(target_os = "linux") { files::raise() } else { None };
        Ok(Program { words: words.to_vec(), files, start_timeout })
    }

    /// How long a process may take until it reads its first task.
    pub(super) fn start_timeout(&self) -> Duration {
        self.start_timeout
    }

    /// How to start it.
    pub(super) fn command(&self) -> tokio::process::Command {
        // The shim becomes the command, and has the system end it with this process.
        #[cfg(target_os = "linux")]
        let mut command = {
            let mut command = tokio::process::Command::new("/proc/self/exe");
            command.args(["worker-child", "--parent", &std::process::id().to_string()]);
            command.args(self.files.map(|files| format!("--files={files}")));
            command.arg("--").args(&self.words);
            command
        };
        #[cfg(not(target_os = "linux"))]
        let mut command = {
            let mut command = tokio::process::Command::new(&self.words[0]);
            command.args(&self.words[1..]);
            command
        };
        command.process_group(0).kill_on_drop(true);
        command
    }
}

/// As it was given.
impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        f.write_str(&words.join(" "))
    }
}

fn find(name: &OsStr) -> Result<PathBuf, io::Error> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return is_program(path).map(|()| path.to_owned());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| is_program(path).is_ok());
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not in PATH"))
}

fn is_program(path: &Path) -> Result<(), io::Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let meta = fs::metadata(path)?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable"));
    }
    Ok(())
}
