//! One program at work: started, listened to, told to go and to stop, and ended whatever happens.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::http::process::tied_to_us;

/// How many lines may wait to be read.
const LINES: usize = 1_024;
/// How long a program may take to end once it has nothing more to say.
const END: Duration = Duration::from_secs(5);

/// A program that speaks lines of JSON.
pub(crate) struct Running {
    what: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    log: PathBuf,
}

impl Running {
    /// Starts it. Only from the main thread: it ends with the thread that started it.
    pub(crate) fn start(program: &[PathBuf], words: &[String], log: PathBuf) -> Result<Self, String> {
        let what = words.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
        let failed = |error: std::io::Error| format!("{what}: {error}");
        let (first, rest) = program.split_first().ok_or("no program")?;
        let mut command = tied_to_us(first);
        command.args(rest).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(&log).map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take().expect("it is piped");
        let lines = follow(child.stdout.take().expect("it is piped"));
        Ok(Running { what, child, stdin, lines, log })
    }

    /// Its next line, or `None` when it has nothing more to say.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Option<Value>, String> {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("{}: too slow", self.what)),
        }
    }

    /// Its next line if there is one by now.
    pub(crate) fn look(&mut self) -> Result<Option<Value>, String> {
        match self.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(format!("{} ended: {}", self.what, self.last_words())),
        }
    }

    /// Waits until it can start to work.
    pub(crate) fn ready(&mut self, until: Instant) -> Result<(), String> {
        match self.next(until)? {
            Some(line) if line.get("ready").is_some() => Ok(()),
            other => Err(format!("{} did not get ready: {other:?} {}", self.what, self.last_words())),
        }
    }

    /// Tells it something: to go, at first; to stop, when it goes.
    pub(crate) fn tell(&mut self, word: &str) -> Result<(), String> {
        writeln!(self.stdin, "{word}").map_err(|error| format!("{} does not listen: {error}", self.what))
    }

    /// All that it still has to say, once it has ended well.
    pub(crate) fn rest(mut self, until: Instant) -> Result<Vec<Value>, String> {
        let mut rest = Vec::new();
        while let Some(line) = self.next(until)? {
            rest.push(line);
        }
        let end = Instant::now() + END;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(rest),
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
                Ok(Some(status)) => return Err(format!("{}: {status}: {}", self.what, self.last_words())),
                Ok(None) => return Err(format!("{} does not end", self.what)),
                Err(error) => return Err(format!("{}: {error}", self.what)),
            }
        }
    }

    fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of JSON become values; others are the program's own, and nobody's concern.
fn follow(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = sync_channel(LINES);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let value = if line.starts_with('{') { serde_json::from_str(&line).ok() } else { None };
            if value.is_some_and(|value| sender.send(value).is_err()) {
                return;
            }
        }
    });
    receiver
}

/// The last lines of a log, as one.
fn last_words(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    plain(&lines[lines.len().saturating_sub(3)..].join(" / "))
}

/// The text without what colours it on a terminal.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let behind =
        |part: &str| part.split_once(|c: char| c.is_ascii_alphabetic()).map(|(_, text)| text.to_owned());
    first + &parts.filter_map(behind).collect::<String>()
}

#[cfg(test)]
mod tests {
    use std::{
        env, process,
        time::{Duration, Instant},
    };

    use super::Running;

    fn shell(name: &str, script: &str) -> Running {
        let log = env::temp_dir().join(format!("flowgate-running-{name}-{}.log", process::id()));
        Running::start(&["/bin/sh".into(), "-c".into(), script.into()], &["peer".to_owned()], log).unwrap()
    }

    #[test]
    fn it_is_told_to_go_and_says_how_it_went() {
        let mut peer =
            shell("goes", r#"echo banner; echo '{"ready":true}'; read -r word; echo "{\"word\":\"$word\"}""#);
        let until = Instant::now() + Duration::from_secs(10);
        peer.ready(until).unwrap();
        peer.tell("go").unwrap();
        assert_eq!(peer.rest(until).unwrap(), [serde_json::json!({"word": "go"})]);
    }

    #[test]
    fn one_that_fails_is_told_with_its_last_words() {
        let peer = shell("fails", r"printf '\033[1mnot\033[0m today\n' >&2; exit 3");
        let error = peer.rest(Instant::now() + Duration::from_secs(10)).unwrap_err();
        assert_eq!(error, "peer: exit status: 3: not today");
    }

    #[test]
    fn one_that_hangs_is_not_waited_for() {
        let peer = shell("hangs", "read -r forever");
        assert_eq!(peer.rest(Instant::now()).unwrap_err(), "peer: too slow");
    }
}
