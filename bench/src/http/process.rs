//! A process on the stage: started, waited for, and ended whatever happens.
//!
//! Owns how processes come and go. They go with the value, and with us if we are killed: then the kernel tells them.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{accounting, tools};

const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

/// A server in a process of its own, with all it starts.
pub(crate) struct Process {
    name: String,
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Process {
    /// Starts a server, and waits until it listens. What it says goes to a log in the folder.
    ///
    /// Only from the main thread: the process ends with the thread that started it.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        words: &[String],
        port: u16,
        folder: &Path,
    ) -> Result<Self, String> {
        let log = folder.join(format!("{name}-{port}.log"));
        let said = |error: io::Error| format!("{name} was not started: {error}");
        let mut command = tied_to_us(program);
        command.args(words).stdin(Stdio::null());
        let file = File::create(&log).map_err(said)?;
        command.stdout(file.try_clone().map_err(said)?).stderr(file);
        let child = command.spawn().map_err(said)?;
        let mut process = Process { name: name.to_owned(), child, port, log };
        process.wait_until_it_listens()?;
        Ok(process)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let end = Instant::now() + START;
        while TcpStream::connect(self.address()).is_err() {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > end {
                let what = ended
                    .map_or_else(|| "does not listen".to_owned(), |status| format!("ended with {status}"));
                return Err(format!("{} {what}: {}", self.name, self.last_words()));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The last lines of its log, as one.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The processor time it has used so far, with all below it.
    pub(crate) fn processor_time(&self) -> Result<Duration, String> {
        accounting::processor_time(self.child.id())
    }

    /// The memory it has now, with all below it, in bytes.
    pub(crate) fn resident(&self) -> Result<f64, String> {
        accounting::resident(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Asked first: nginx's master takes its workers along only when it is asked.
        let asked = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", self.child.id())).status();
        let end = Instant::now() + END;
        while asked.is_ok() && Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, told to end when we do: `setpriv` is a part of every Debian.
pub(crate) fn tied_to_us(program: &Path) -> Command {
    match tools::find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A port of loopback that nobody listens on.
pub(crate) fn free_port() -> Result<u16, String> {
    flowgate_testkit::free_port().map_err(|error| format!("there is no free port: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{env, path::Path};

    use super::{Process, free_port};

    #[test]
    fn one_that_ends_at_once_is_told_with_its_last_words() {
        let words = ["-c", "echo not today; exit 3"].map(str::to_owned);
        let started =
            Process::start("server", Path::new("/bin/sh"), &words, free_port().unwrap(), &env::temp_dir());
        let Err(error) = started else { panic!("it does not listen") };
        assert_eq!(error, "server ended with exit status: 3: not today");
    }
}
