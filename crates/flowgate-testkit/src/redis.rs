//! A Redis of one's own, for tests and benchmarks.
//!
//! Owns a server on a free port of loopback that keeps nothing on disk. It may be killed and started again, and is gone with us, however
//! we end: a shell that waits for our end kills it.

use std::{
    io::{self, BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use crate::postgres::free_port;

/// Starts the server, and kills it when its own input ends.
const SCRIPT: &str = "redis-server --port $1 --bind 127.0.0.1 --save '' --appendonly no & \
                      server=$!; read -r _; kill -s KILL $server; wait $server";

/// A private Redis.
pub struct Redis {
    port: u16,
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
        let redis = Redis { port: free_port()?, life: Mutex::new(None) };
        redis.restart()?;
        Ok(redis)
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Starts it again on the same port, empty, and waits until it takes connections. One that runs is killed first.
    pub fn restart(&self) -> io::Result<()> {
        self.kill_nine()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "redis", &self.port.to_string()]);
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
