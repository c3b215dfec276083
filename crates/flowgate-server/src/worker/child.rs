//! One child process: its pipes, one question and answer at a time, and its end.
//!
//! Owns the process and its whole group. Whoever drops it has it killed.

use std::{
    io::{self, Write as _},
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use flowgate_tasks::MAX_BODY;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child as Process, ChildStderr, ChildStdin, ChildStdout},
};

use super::command::Program;

/// The longest line of an answer: a result of the largest size, and what is around it.
const LONGEST_ANSWER: usize = MAX_BODY + 1024;
/// Longer lines of standard error are passed on in parts.
const LONGEST_WORD: usize = 64 * 1024;
/// How long a process has to end by itself when its output has ended, and to be gone when it was killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// A child process that runs.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    /// `None` once it was told that nothing more comes.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Whether it has answered before: it can do what is asked of it.
    pub(super) has_answered: bool,
}

/// Why there is no answer, and never will be by this process.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("its process ended ({0}) before it had answered")]
    Ended(String),
    #[error("its process wrote a line of more than {LONGEST_ANSWER} bytes, which is no answer")]
    TooLong,
    #[error("its process answered before it had read the task")]
    TooEarly,
}

impl Child {
    /// Starts a process; what it writes to standard error is passed on with this number before each line.
    pub(super) fn start(program: &Program, number: u32) -> io::Result<Self> {
        let mut command = program.command();
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let taken = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = taken else {
            return Err(io::Error::other("a pipe is missing"));
        };
        // It ends with the last process that holds the other end of the pipe.
        tokio::spawn(pass_on(stderr, number));
        let stdout = BufReader::with_capacity(64 * 1024, stdout);
        Ok(Child { process, stdin: Some(stdin), stdout, has_answered: false })
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.process.try_wait().ok().flatten().map(words)
    }

    /// Writes the question and reads the answer's line.
    pub(super) async fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut is_asked = false;
        let line = {
            let write = async {
                // A process that is gone is told by its output, which ends.
                if let Some(stdin) = &mut self.stdin {
                    is_asked = stdin.write_all(question).await.is_ok() && stdin.flush().await.is_ok();
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                line = read_line(&mut self.stdout, LONGEST_ANSWER) => line,
                () = write => unreachable!("it waits for ever"),
            }
        };
        match line {
            Ok(Line::Whole(line)) if is_asked => Ok(line),
            Ok(Line::Whole(_)) => Err(Broken::TooEarly),
            Ok(Line::TooLong(_)) => Err(Broken::TooLong),
            Ok(Line::End(_)) | Err(_) => Err(Broken::Ended(self.end().await)),
        }
    }

    /// Its output has ended: so has it, or it will be killed.
    async fn end(&mut self) -> String {
        match tokio::time::timeout(PATIENCE, self.process.wait()).await {
            Ok(Ok(status)) => words(status),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it closed its standard output".to_owned(),
        }
    }

    /// Tells it that nothing more comes, and gives it a moment to end.
    pub(super) async fn close(mut self) {
        self.stdin = None;
        self.end().await;
    }

    /// Kills it and all that it started, and returns when it is gone: what it did is over when its slot is given on.
    pub(super) fn kill(&mut self) {
        let group = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // Without a number it has been waited for already.
        let Some(group) = group else { return };
        let _ = kill_process_group(group, Signal::KILL);
        let since = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && since.elapsed() < PATIENCE {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn words(status: ExitStatus) -> String {
    status.to_string()
}

enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// The first part of it.
    TooLong(Vec<u8>),
    /// What was left when the output ended.
    End(Vec<u8>),
}

async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), longest: usize) -> io::Result<Line> {
    let mut line = Vec::new();
    loop {
        let part = reader.fill_buf().await?;
        if part.is_empty() {
            return Ok(Line::End(line));
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let room = longest - line.len();
        let taken = end.unwrap_or(part.len());
        if taken > room {
            line.extend_from_slice(&part[..room]);
            reader.consume(room);
            return Ok(Line::TooLong(line));
        }
        line.extend_from_slice(&part[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Line::Whole(line));
        }
    }
}

async fn pass_on(stderr: ChildStderr, number: u32) {
    let mut reader = BufReader::new(stderr);
    while let Ok(line) = read_line(&mut reader, LONGEST_WORD).await {
        let (mut line, is_end) = match line {
            Line::Whole(line) | Line::TooLong(line) => (line, false),
            Line::End(line) if line.is_empty() => return,
            Line::End(line) => (line, true),
        };
        line.push(b'\n');
        let head = format!("[{number}] ");
        // Nobody may be left to read it.
        let _ = io::stderr().lock().write_all(&[head.as_bytes(), &line].concat());
        if is_end {
            return;
        }
    }
}
