//! The real binary: a folder with a store, commands that run to their end, and workers that run until they are stopped.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The binary, with nothing of this process's environment that it would listen to.
pub(crate) fn flowgate(folder: &Path, store: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("FLOWGATE_") {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).env("FLOWGATE_STORE", store).stdin(Stdio::null());
    command
}

/// The interpreter itself, without what a version manager may put before it.
pub(crate) fn python() -> &'static OsStr {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let found = found.expect("python3 is installed: ./test does so");
        PathBuf::from(String::from_utf8(found.stdout).expect("a path").trim())
    };
    PYTHON.get_or_init(find).as_os_str()
}

/// A folder that one test has for itself, empty at first.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("worker").join(name);
    // It may be left from an earlier run.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the target folder can be written to");
    path
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn by(command: &mut Command) -> Self {
        let output = command.output().expect("the binary starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
        Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A worker that runs. Dropped, it is killed.
pub(crate) struct Worker {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// What it said so far.
    pub(crate) said: Vec<String>,
}

impl Worker {
    /// Starts it, and waits until it works.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut worker = Worker::launch(command);
        worker.until("Ctrl-C stops it");
        worker
    }

    pub(crate) fn launch(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("it was asked for"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Worker { child, lines, said: Vec::new() }
    }

    /// The same, with nobody who reads what it says.
    pub(crate) fn launch_unheard(command: &mut Command) -> Self {
        let child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
        let (_, lines) = mpsc::channel();
        Worker { child, lines, said: Vec::new() }
    }

    /// Waits until it says this, and gives the line.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < DEADLINE, "{text:?} is not said in time");
            let line = self.lines.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|error| panic!("{text:?}: {error}; it said {:#?}", self.said));
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status().expect("there is a `kill`");
        assert!(sent.success());
    }

    /// Its number.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end: its exit code and everything it said.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<String>) {
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.said.push(line);
        }
        (self.child.wait().expect("it has ended").code(), std::mem::take(&mut self.said))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
