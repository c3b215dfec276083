//! Where the suite plays: a folder for configuration and logs, the programs, and the end of all of it.
//!
//! Owns that nothing stays behind: neither after a case that failed nor after Ctrl-C.

use std::{
    cell::OnceCell,
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    thread,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use super::{
    process::{Process, free_port},
    proxies::{Haproxy, Nginx, Ours},
    role::Role,
    tools,
    wrk::Wrk,
};
use crate::suite::Suite;

/// What all cases share.
pub(crate) struct Stage {
    folder: PathBuf,
    open_files: u64,
    ours: OnceCell<PathBuf>,
}

impl Stage {
    pub(crate) fn set(_: &Suite) -> Result<Self, String> {
        let folder = env::temp_dir().join(format!("flowgate-bench-{}", process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        leave_on_signal(folder.clone());
        Ok(Stage { folder, open_files: tools::raise_open_files()?, ours: OnceCell::new() })
    }

    /// How many files each process on the stage may open.
    pub(super) fn open_files(&self) -> u64 {
        self.open_files
    }

    /// Starts `flowgate serve` with a gateway like this.
    pub(super) fn ours(&self, name: &str, ours: &Ours) -> Result<Process, String> {
        let (port, demo) = (free_port()?, free_port()?);
        let config = self.write(&format!("{name}.toml"), &ours.config(port, demo))?;
        let arguments = ["serve", "--store", "sqlite::memory:", "--config", &config].map(str::to_owned);
        self.start(name, self.flowgate()?, &arguments, port)
    }

    /// Starts nginx like this.
    pub(super) fn nginx(&self, name: &str, nginx: &Nginx) -> Result<Process, String> {
        let program = tools::program("nginx")?;
        let port = free_port()?;
        let config = self.write(&format!("{name}.conf"), &nginx.config(port, &self.folder.join(name)))?;
        fs::create_dir_all(self.folder.join(name)).map_err(|error| error.to_string())?;
        self.start(name, &program, &["-c".to_owned(), config, "-e".to_owned(), "stderr".to_owned()], port)
    }

    /// Starts HAProxy like this.
    pub(super) fn haproxy(&self, name: &str, haproxy: &Haproxy) -> Result<Process, String> {
        let program = tools::program("haproxy")?;
        let port = free_port()?;
        let config = self.write(&format!("{name}.cfg"), &haproxy.config(port))?;
        self.start(name, &program, &["-db".to_owned(), "-f".to_owned(), config], port)
    }

    /// Starts this very program as one of the servers.
    pub(super) fn server(&self, role: Role) -> Result<Process, String> {
        let program =
            env::current_exe().map_err(|error| format!("this program does not find itself: {error}"))?;
        let port = free_port()?;
        self.start(role.word(), &program, &role.words(port), port)
    }

    fn start(&self, name: &str, program: &Path, words: &[String], port: u16) -> Result<Process, String> {
        Process::start(name, program, words, port, &self.folder)
    }

    /// The load.
    pub(super) fn wrk(&self) -> Result<Wrk, String> {
        Ok(Wrk::new(tools::program("wrk")?, self.write("wrk.lua", Wrk::SCRIPT)?))
    }

    /// The binary of the server, built on the first call.
    fn flowgate(&self) -> Result<&Path, String> {
        if self.ours.get().is_none() {
            let built = build()?;
            return Ok(self.ours.get_or_init(|| built));
        }
        Ok(self.ours.get().expect("it is there"))
    }

    fn write(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Builds the server like this program was built, and beside it.
pub(crate) fn build() -> Result<PathBuf, String> {
    let us = env::current_exe().map_err(|error| format!("this program does not find itself: {error}"))?;
    let target = us.parent().and_then(Path::parent).ok_or("this program stands in no target folder")?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "flowgate-server", "--bin", "flowgate"]);
    cargo
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"), "--target-dir"])
        .arg(target);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Stdout is for figures.
    let status = cargo.stdin(Stdio::null()).stdout(io::stderr()).status();
    let status = status.map_err(|error| format!("cargo could not be run: {error}"))?;
    if status.success() {
        Ok(us.with_file_name("flowgate"))
    } else {
        Err("`flowgate` does not build".to_owned())
    }
}

/// Ends the program on Ctrl-C and its like, and the folder with it; the processes on the stage see us go.
pub(crate) fn leave_on_signal(folder: PathBuf) {
    thread::spawn(move || {
        let runtime =
            Builder::new_current_thread().enable_io().build().expect("a runtime of one thread needs nothing");
        runtime.block_on(async {
            let listen = |kind| signal(kind).expect("the kernel lets us listen to signals");
            let (mut interrupt, mut terminate) =
                (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
            let mut hangup = listen(SignalKind::hangup());
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        let _ = fs::remove_dir_all(&folder);
        eprintln!("stopped");
        // As a shell tells of a program that Ctrl-C ended.
        process::exit(130);
    });
}
