//! The real binary with a gateway, on free ports, ended with the test.
//!
//! Owns the process and its config file, and waiting for what its figures say.

use std::{
    env, fs,
    io::{BufRead, BufReader, Lines},
    net::SocketAddr,
    path::PathBuf,
    process::{self, Child, ChildStdout, Command, Output, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::client::{Client, Message};

/// Longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Program {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
    server: SocketAddr,
    pub(crate) gateway: SocketAddr,
}

/// What its own server accepts.
pub(crate) const TOKEN: &str = "a-token-of-the-tests";

/// A folder of its own for each test.
fn folder() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("flowgate-gateway-{}-{number}", process::id()));
    fs::create_dir_all(&folder).expect("the folder of temporary files is there");
    folder
}

/// A gateway before this upstream, with these lines in `[gateway]` and these tables after it.
pub(crate) fn config(upstream: SocketAddr, lines: &str, tables: &str) -> String {
    format!("[gateway]\nlisten = \"127.0.0.1:0\"\nupstreams = [\"http://{upstream}\"]\n{lines}\n{tables}\n")
}

impl Program {
    pub(crate) fn start(config: &str) -> Self {
        let folder = folder();
        let path = folder.join("flowgate.toml");
        fs::write(&path, config).expect("the folder can be written to");
        let mut command = flowgate("serve", &path);
        let mut child = command
            .args([
                "--listen",
                "127.0.0.1:0",
                "--store",
                "sqlite::memory:",
                "--metrics-open",
                "--token",
                TOKEN,
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let mut greeting = Vec::new();
        while greeting.last().is_none_or(|line: &String| !line.contains("Ctrl-C")) {
            greeting.push(said.next().expect("the greeting has an end").expect("it is text"));
        }
        let address = |line: &String| {
            let (_, rest) = line.split_once("://")?;
            rest.split(['/', ' ']).next()?.parse().ok()
        };
        let server = address(&greeting[0]).expect("the first line says where the server listens");
        let gateway = address(&greeting[1]).expect("the second line says where the gateway listens");
        Program { child, said, folder, server, gateway }
    }

    /// A gateway before this upstream; see [`config`].
    pub(crate) fn before(upstream: SocketAddr, lines: &str, tables: &str) -> Self {
        Program::start(&config(upstream, lines, tables))
    }

    /// A client's connection to the gateway.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.gateway)
    }

    /// A POST with these headers, answered.
    pub(crate) fn post(&self, target: &str, headers: &str) -> Message {
        let mut client = self.client();
        client.ask("POST", target, headers);
        client.read()
    }

    pub(crate) fn figures(&self) -> Value {
        Client::connect(self.server).get("/gateway").json()
    }

    /// What Prometheus would read.
    pub(crate) fn metrics(&self) -> String {
        Client::connect(self.server).get("/metrics").text().to_owned()
    }

    /// Waits until `holds` is true of the figures.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        loop {
            let figures = self.figures();
            if holds(&figures) {
                return;
            }
            assert!(started.elapsed() < DEADLINE, "{what}: not in time; last {figures}");
            thread::yield_now();
        }
    }

    /// Waits until so many are in flight and so many wait on the first route.
    pub(crate) fn settle(&self, in_use: u64, waiting: u64) {
        self.until(&format!("{in_use} in use, {waiting} waiting"), |figures| {
            figures["routes"][0]["in_use"] == in_use && figures["routes"][0]["waiting"] == waiting
        });
    }

    /// The names of its threads, and the processors each may run on. The first is the one it began with.
    #[cfg(target_os = "linux")]
    pub(crate) fn threads(&self) -> Vec<(String, String)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let mut paths: Vec<_> = tasks.map(|task| task.expect("it can be listed").path()).collect();
        paths.sort_by_key(|path| path.file_name() != Some(self.child.id().to_string().as_ref()));
        let field = |status: &str, name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.expect("every thread has that").trim().to_owned()
        };
        // A thread may have ended since it was listed.
        let statuses = paths.iter().filter_map(|path| fs::read_to_string(path.join("status")).ok());
        statuses.map(|status| (field(&status, "Name:"), field(&status, "Cpus_allowed_list:"))).collect()
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status().expect("there is a `kill`");
        assert!(sent.success());
    }

    /// The next line it says.
    pub(crate) fn says(&mut self) -> String {
        self.said.next().expect("it says something").expect("it is text")
    }

    pub(crate) fn rewrite(&self, config: &str) {
        fs::write(self.folder.join("flowgate.toml"), config).expect("the folder can be written to");
    }

    /// Another config file, read by signal; what came of it.
    pub(crate) fn reload(&mut self, config: &str) -> String {
        self.rewrite(config);
        self.signal("HUP");
        self.says()
    }

    /// `flowgate reload` with this token, run to its end.
    pub(crate) fn ask_to_reload(&self, config: &str, token: &str) -> Output {
        self.rewrite(config);
        let mut command = flowgate("reload", &self.folder.join("flowgate.toml"));
        command
            .args(["--listen", &self.server.to_string()])
            .env("QSTASH_TOKEN", token)
            .output()
            .expect("it starts")
    }

    /// What it said until its end, and its exit code.
    pub(crate) fn end(mut self) -> (String, Option<i32>) {
        let (tell, told) = mpsc::channel();
        // Its output ends when it does.
        let said = std::mem::replace(&mut self.said, nothing());
        thread::spawn(move || tell.send(said.map_while(Result::ok).collect::<Vec<_>>().join("\n")));
        let said = told.recv_timeout(DEADLINE).expect("it ends in time");
        (said, self.child.wait().expect("it has ended").code())
    }
}

/// The output of a program that says nothing.
fn nothing() -> Lines<BufReader<ChildStdout>> {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().expect("there is a `true`");
    let lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    child.wait().expect("it ends at once");
    lines
}

fn flowgate(command: &str, config: &std::path::Path) -> Command {
    let mut flowgate = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    flowgate.arg(command).arg("--config").arg(config).stdin(Stdio::null());
    for (name, _) in env::vars().filter(|(name, _)| name.starts_with("FLOWGATE_")) {
        flowgate.env_remove(name);
    }
    flowgate
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already; either way nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
