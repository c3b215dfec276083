//! A Redis of one's own, for tests and benchmarks.
//!
//! Owns a server on a free port of loopback, which writes down what it is told, unless it is a forgetful one.
//! It may be killed and started again, empty in either case, and is gone with us, however we end: a shell
//! that waits for our end kills it.

use std::{
    io::{self, BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use crate::port::free_port;

/// Starts the server, and kills it when its own input ends.
const SCRIPT: &str = "dir=$(mktemp -d); \
    redis-server --port $1 --bind 127.0.0.1 --save '' --appendonly $2 --appendfsync no --dir $dir & \
    server=$!; read -r _; kill -s KILL $server; wait $server; rm -r $dir";

/// A private Redis.
pub struct Redis {
    port: u16,
    is_forgetful: bool,
    life: Mutex<Option<(Child, ChildStdin)>>,
}

impl Redis {
    /// The server that all tests of this process share. Each test takes names of its own.
    ///
    /// # Panics
    ///
    /// If it cannot be started; the message says what to install.
    pub fn shared() -> &'static Redis {
        static SHARED: OnceLock<Redis> = OnceLock::new();
        SHARED.get_or_init(|| Redis::start().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Starts an empty server, and waits until it takes connections.
    pub fn start() -> io::Result<Self> {
        Redis::open(false)
    }

    /// Starts one without persistence, as a cache is run.
    pub fn start_forgetful() -> io::Result<Self> {
        Redis::open(true)
    }

    fn open(is_forgetful: bool) -> io::Result<Self> {
        let redis = Redis { port: free_port()?, is_forgetful, life: Mutex::new(None) };
        redis.restart()?;
        Ok(redis)
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Runs a command with `redis-cli`, and gives what it printed.
    pub fn cli(&self, words: &[&str]) -> io::Result<String> {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port, "-e"]).args(words).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// Starts it again on the same port, empty, and waits until it takes connections. One that runs is killed first.
    pub fn restart(&self) -> io::Result<()> {
        self.kill_nine()?;
        let mut shell = Command::new("sh");
        let appends = if self.is_forgetful { "no" } else { "yes" };
        shell.args(["-c", SCRIPT, "redis", &self.port.to_string(), appends]);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let said = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        let is_ready = said.map_while(Result::ok).any(|line| line.contains("Ready to accept connections"));
        let input = child.stdin.take().ok_or_else(|| io::Error::other("a shell without input"))?;
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Some((child, input));
        if is_ready {
            return Ok(());
        }
        self.kill_nine()?;
        Err(io::Error::other(
            "Redis did not start: `./test` installs it, and so does `apt-get install redis-server`",
        ))
    }

    /// Kills it with SIGKILL, and waits until it is gone, with all it kept.
    pub fn kill_nine(&self) -> io::Result<()> {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut child, input)) = life else { return Ok(()) };
        drop(input);
        child.wait().map(|_| ())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.kill_nine();
    }
}
