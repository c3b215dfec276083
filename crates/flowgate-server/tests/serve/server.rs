//! The real binary, started on a free port and ended with the test.
//!
//! Owns the process, and waiting for what its figures say: on the server's own stream of them, never by sleeping.

use std::{
    io::{BufRead, BufReader, Lines},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::client::{Answer, Request};

const DEADLINE: Duration = Duration::from_secs(30);
const CONSOLE: (&str, &str) = ("X-Flowgate", "console");

pub(crate) struct Server {
    child: Child,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
    pub(crate) address: SocketAddr,
    pub(crate) greeting: String,
}

/// The binary, with nothing of this process's own environment that it would listen to.
pub(crate) fn flowgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["CONFIG", "DEMO_LISTEN", "MAX", "QUEUE", "TIMEOUT", "RATE", "PERIOD"] {
        command.env_remove(format!("FLOWGATE_{name}"));
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = flowgate(&["demo", "--listen", "127.0.0.1:0"]);
        Server::launch(command.args(options))
    }

    pub(crate) fn launch(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let stdout = child.stdout.take().expect("it was asked for");
        let mut lines = BufReader::new(stdout).lines();
        let mut greeting = String::new();
        while !greeting.contains("Ctrl-C") {
            let line = lines.next().expect("the greeting has an end").expect("it is text");
            greeting.extend([line.as_str(), "\n"]);
        }
        let url = greeting.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = url.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {greeting:?}"));
        Server { child, stdout: Some(lines), address, greeting }
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) fn send(&self, target: &str) -> Request {
        Request::send(self.address, "GET", target, &[])
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.send(target).answer()
    }

    /// Sends what the page's buttons send, and does not wait for its answer.
    pub(crate) fn press(&self, target: &str) -> Request {
        Request::send(self.address, "POST", target, &[CONSOLE])
    }

    pub(crate) fn post(&self, target: &str, headers: &[(&str, &str)]) -> Answer {
        Request::send(self.address, "POST", target, headers).answer()
    }

    pub(crate) fn figures(&self) -> Value {
        self.get("/figures").json()
    }

    /// The figures as soon as `holds` is true of them.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        let stream = self.send("/events").into_stream();
        let mut last = String::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap_or_else(|error| panic!("{what}: {error}; last {last}"));
            let Some(text) = line.strip_prefix("data: ") else { continue };
            let figures = serde_json::from_str(text).expect("figures are JSON");
            if holds(&figures) {
                return figures;
            }
            text.clone_into(&mut last);
            assert!(started.elapsed() < DEADLINE, "{what}: not in time; last {last}");
        }
        panic!("{what}: the stream ended; last {last}");
    }

    /// Waits until so many are in flight and so many wait at the gate.
    pub(crate) fn settle(&self, gate: &str, in_use: u64, waiting: u64) -> Value {
        let what = format!("{gate}: {in_use} in use, {waiting} waiting");
        self.until(&what, |figures| figures[gate]["in_use"] == in_use && figures[gate]["waiting"] == waiting)
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status().expect("there is a `kill`");
        assert!(sent.success());
    }

    /// The exit code, and what it said after the greeting.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let lines = self.stdout.take().expect("a server ends once");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let said: String = lines.map_while(Result::ok).map(|line| line + "\n").collect();
            tell.send(said)
        });
        // Its output ends when it does.
        let said = told.recv_timeout(DEADLINE).expect("the server ends in time");
        (self.child.wait().expect("it has ended").code(), said)
    }

    /// Waits until the server has begun to stop.
    pub(crate) fn stops(&mut self) {
        let line = self.stdout.as_mut().and_then(Iterator::next).expect("it says so").expect("it is text");
        assert!(line.starts_with("stopping"), "{line}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; either way nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
