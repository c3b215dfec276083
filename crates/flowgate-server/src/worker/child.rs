//! One child process: its pipes, one question and answer at a time, and its end.
//!
//! Owns the process and its whole group. Whoever drops it has it killed.

use std::{
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use flowgate_tasks::{MAX_BODY, worker::Begun};
use futures_util::FutureExt as _;
use rustix::{
    io::ioctl_fionread,
    process::{Pid, Signal, kill_process_group},
};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child as Process, ChildStderr, ChildStdin, ChildStdout},
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
    time::{sleep, timeout},
};

use super::{command::Program, line::shown, log, warden::Warden};

/// The longest line of an answer: a result of the largest size, and what is around it.
const LONGEST_ANSWER: usize = MAX_BODY + 1024;
/// Longer lines of standard error are passed on in parts.
const LONGEST_WORD: usize = 8 * 1024;
/// How long a process has to end by itself when its output has ended, and to be gone when it was killed.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is seen whether a process has read what it is asked: nobody tells.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process that never answered may take until it reads what it is asked: it may have much to load first.
const START: Duration = Duration::from_secs(10 * 60);

/// A child process that runs.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    /// Its number, which is that of its group.
    group: Pid,
    /// Whether it was waited for: from then on its number may be another's.
    is_gone: bool,
    warden: Warden,
    /// `None` once it was told that nothing more comes.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Whether it has answered before: it can do what is asked of it.
    pub(super) has_answered: bool,
}

/// Why there is no answer, and never will be by this process.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The task did not begin.
    #[error("its process ended ({0}) before it had read the task")]
    Unread(String),
    #[error("its process ended ({0}) before it had answered")]
    Ended(String),
    #[error("its process wrote a line of more than {LONGEST_ANSWER} bytes, which is no answer")]
    TooLong,
    #[error("its process answered before it had read the task")]
    TooEarly,
}

impl Child {
    /// Starts a process; what it writes to standard error is passed on with this number before each line.
    pub(super) fn start(program: &Program, number: u32, warden: &Warden) -> io::Result<Self> {
        let mut command = program.command();
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let taken = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = taken else {
            return Err(io::Error::other("a pipe is missing"));
        };
        let group = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = group.ok_or_else(|| io::Error::other("it has no number"))?;
        warden.begun(group);
        // It ends with the last process that holds the other end of the pipe.
        tokio::spawn(pass_on(stderr, number));
        let stdout = BufReader::with_capacity(64 * 1024, stdout);
        let warden = warden.clone();
        let stdin = Some(stdin);
        Ok(Child { process, group, is_gone: false, warden, stdin, stdout, has_answered: false })
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok().flatten()?;
        self.gone();
        Some(words(status))
    }

    /// What it did without having been asked, if it did anything: then nobody knows what it would answer.
    pub(super) fn strayed(&mut self) -> Option<String> {
        match self.stdout.fill_buf().now_or_never()? {
            Ok([]) => Some("its process closed its standard output".to_owned()),
            Ok(part) => {
                let line = part.split(|byte| *byte == b'\n').next().unwrap_or_default();
                Some(format!("its process wrote {} without having been asked", shown(line)))
            }
            Err(error) => Some(format!("its process cannot be heard ({error})")),
        }
    }

    /// Writes the question and reads the answer's line. What is asked has begun when the process has read of it; one that has answered before
    /// has nothing to wait for.
    pub(super) async fn ask(&mut self, question: &[u8], begun: &Begun) -> Result<Vec<u8>, Broken> {
        let (mut written, mut status, mut is_shut, mut is_late) = (0, None, false, false);
        let mut is_begun = self.has_answered;
        if is_begun {
            begun.say();
        }
        let line = {
            let mut late = pin!(sleep(START));
            let write = async {
                let Some(stdin) = &mut self.stdin else { return };
                loop {
                    tokio::select! {
                        biased;
                        more = stdin.write(&question[written..]), if written < question.len() => match more {
                            Ok(more @ 1..) => written += more,
                            _ => return,
                        },
                        () = sleep(LOOK), if !is_begun => {
                            is_begun = ioctl_fionread(&*stdin).ok() != Some(written as u64);
                            if is_begun {
                                begun.say();
                            }
                        }
                        () = &mut late, if !is_begun => {
                            is_late = true;
                            return;
                        }
                        else => std::future::pending::<()>().await,
                    }
                }
            };
            let mut reading = pin!(read_line(&mut self.stdout, LONGEST_ANSWER));
            tokio::select! {
                biased;
                line = &mut reading => line,
                // It is gone, or about to; or it goes on, and whatever it does, it will not answer.
                () = write => {
                    is_shut = true;
                    Ok(Line::End(Vec::new()))
                }
                ended = self.process.wait() => {
                    status = Some(ended);
                    self.is_gone = true;
                    // What it started may hold the pipe open, and does not answer in its place.
                    put_down(self.group, &self.warden);
                    timeout(PATIENCE, reading).await.unwrap_or(Ok(Line::End(Vec::new())))
                }
            }
        };
        match line {
            Ok(Line::Whole(line)) if written == question.len() => Ok(line),
            Ok(Line::Whole(_)) => Err(Broken::TooEarly),
            Ok(Line::TooLong(_)) => Err(Broken::TooLong),
            Ok(Line::End(_)) | Err(_) => {
                let how = match status {
                    Some(Ok(status)) => words(status),
                    Some(Err(error)) => error.to_string(),
                    None if is_late => format!("it had read nothing after {START:?}"),
                    None => self.end(if is_shut { "input" } else { "output" }).await,
                };
                let is_unread =
                    is_late || self.is_unread(written) || is_shut && !self.is_gone && written == 0;
                Err(if is_unread { Broken::Unread(how) } else { Broken::Ended(how) })
            }
        }
    }

    /// Whether all that was written is still in the pipe.
    fn is_unread(&self, written: usize) -> bool {
        let left = self.stdin.as_ref().and_then(|stdin| ioctl_fionread(stdin).ok());
        self.is_gone && left == Some(written as u64)
    }

    /// Its input or its output has ended: so has it, or it will be killed.
    async fn end(&mut self, what: &str) -> String {
        match timeout(PATIENCE, self.process.wait()).await {
            Ok(ended) => {
                self.gone();
                ended.map_or_else(|error| error.to_string(), words)
            }
            Err(_) => format!("it closed its standard {what}"),
        }
    }

    /// Tells it that nothing more comes, and gives it a moment to end.
    pub(super) async fn close(mut self) {
        self.stdin = None;
        self.end("input").await;
    }

    /// It was waited for, now or before. What it started ends with it.
    fn gone(&mut self) {
        if !std::mem::replace(&mut self.is_gone, true) {
            put_down(self.group, &self.warden);
        }
    }

    /// Kills it and all that it started, and returns when it is gone: what it did is over when its slot is given on.
    fn kill(&mut self) {
        if self.is_gone {
            return;
        }
        put_down(self.group, &self.warden);
        wait_until(|| !matches!(self.process.try_wait(), Ok(None)));
    }
}

/// Waits, for a while at most, where nothing can be awaited: what else this thread of the runtime has to do is done by another one meanwhile. Whether
/// it came.
fn wait_until(mut has_come: impl FnMut() -> bool) -> bool {
    let mut wait = || {
        let since = Instant::now();
        while !has_come() {
            if since.elapsed() >= PATIENCE {
                return false;
            }
            thread::sleep(Duration::from_micros(200));
        }
        true
    };
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(wait),
        _ => wait(),
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills a group whose first process was waited for just now, or not yet: while any of it is left, its number is nobody else's.
fn put_down(group: Pid, warden: &Warden) {
    let _ = kill_process_group(group, Signal::KILL);
    warden.ended(group);
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
        log::pass_on([head.as_bytes(), &line].concat()).await;
        if is_end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::wait_until;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn t7_a_child_that_is_slow_to_end_holds_up_nothing_else() {
        // Seen to fail: without `block_in_place`, what had to happen meanwhile waited for the thread that waited for it.
        let has_come = Arc::new(AtomicBool::new(false));
        let comes = Arc::clone(&has_come);
        let waiting = tokio::spawn(async move {
            tokio::spawn(async move { comes.store(true, Ordering::SeqCst) });
            wait_until(|| has_come.load(Ordering::SeqCst))
        });
        assert!(waiting.await.expect("no panic"), "it came in time");
    }

    #[tokio::test]
    async fn t7_a_child_may_end_where_there_is_one_thread() {
        // Seen to fail: with `block_in_place` everywhere, it panicked.
        assert!(wait_until(|| true));
    }
}
