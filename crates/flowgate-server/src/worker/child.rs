//! One child process: its pipes, one question and answer at a time, and its end.
//!
//! Owns the process and its whole group. Whoever drops it has it killed.

use std::{
    fs::File,
    future::pending,
    io::{self, Read as _},
    os::fd::AsRawFd as _,
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
    net::unix::pipe,
    process::{Child as Process, ChildStderr, ChildStdin, ChildStdout},
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
    time::{sleep, sleep_until, timeout},
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
    /// How long it may take before that until it reads what it is asked: it may have much to load first.
    start_timeout: Duration,
    /// How long it was waited for in vain: for tasks that expired before it had read them. While nothing is asked,
    /// nobody knows whether it hangs.
    waited: Duration,
    /// How much of what it was asked last was written to it.
    written: usize,
}

/// Why there is no answer, and never will be by this process.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The task did not begin.
    #[error("its process ended ({0}) before it had read the task")]
    Unread(String),
    #[error("its process ended ({0}) before it had answered")]
    Ended(String),
    #[error(
        "its process wrote a line of more than {LONGEST_ANSWER} bytes, which is not an answer: a result has up to {MAX_BODY}"
    )]
    TooLong,
    #[error("its process answered before it had read the task")]
    TooEarly,
    /// The task did not begin, and the process is as it was.
    #[error("its `good_until` passed before a process had read it")]
    Overdue,
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
        let (stdin, start_timeout) = (Some(stdin), program.start_timeout());
        let (is_gone, has_answered, waited, written) = (false, false, Duration::ZERO, 0);
        Ok(Child {
            process,
            group,
            is_gone,
            warden,
            stdin,
            stdout,
            has_answered,
            start_timeout,
            waited,
            written,
        })
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
            Err(error) => Some(format!("its process cannot be read from ({error})")),
        }
    }

    /// Writes the question and reads the answer's line. What is asked has begun when the process has read of it; one
    /// that has answered before has nothing to wait for. What has to begin by a moment and has not is taken back: a
    /// process that is slow to start goes on with it.
    pub(super) async fn ask(&mut self, question: &[u8], begun: &Begun) -> Result<Vec<u8>, Broken> {
        self.written = 0;
        let (written, is_begun) = (&mut self.written, self.has_answered);
        let mut asking = Asking { question, begun, written, is_begun, late: None };
        if asking.is_begun {
            begun.say();
        }
        let (mut status, mut is_shut, since) = (None, false, Instant::now());
        let line = {
            let write = async {
                if let Some(stdin) = &mut self.stdin {
                    asking.write(stdin, self.start_timeout.saturating_sub(self.waited)).await;
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
        let late = asking.late;
        match line {
            _ if late == Some(Late::Overdue) => {
                self.waited += since.elapsed();
                Err(Broken::Overdue)
            }
            Ok(Line::Whole(line)) if self.written == question.len() => Ok(line),
            Ok(Line::Whole(_)) => Err(Broken::TooEarly),
            Ok(Line::TooLong(_)) => Err(Broken::TooLong),
            Ok(Line::End(_)) | Err(_) => {
                let how = match (status, late) {
                    (Some(Ok(status)), _) => words(status),
                    (Some(Err(error)), _) => error.to_string(),
                    (None, Some(Late::InTime)) => "it had not read it in time".to_owned(),
                    (None, Some(_)) => format!("it had read nothing after {:?}", self.start_timeout),
                    (None, None) => self.end(if is_shut { "input" } else { "output" }).await,
                };
                let is_unread =
                    late.is_some() || self.is_unread() || is_shut && !self.is_gone && self.written == 0;
                Err(if is_unread { Broken::Unread(how) } else { Broken::Ended(how) })
            }
        }
    }

    /// Whether it is gone, and all that was written to it is still in the pipe.
    fn is_unread(&self) -> bool {
        self.is_gone && self.stdin.as_ref().is_some_and(|stdin| is_unread(stdin, self.written))
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

    /// Kills it. Whether what it was asked had begun: it may have read that since it was last looked at.
    pub(super) fn put_down(mut self) -> bool {
        self.kill();
        !self.is_unread()
    }

    /// Kills it and all that it started, and returns when it is gone: what it did is over when its slot is given on.
    fn kill(&mut self) {
        if self.is_gone {
            return;
        }
        put_down(self.group, &self.warden);
        self.is_gone = wait_until(|| !matches!(self.process.try_wait(), Ok(None)));
    }
}

/// Waits, for a while at most, where nothing can be awaited: what else this thread of the runtime has to do is done by
/// another one meanwhile. Whether it came.
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

/// A question on its way to a process, and how far it came.
struct Asking<'a> {
    question: &'a [u8],
    begun: &'a Begun,
    written: &'a mut usize,
    is_begun: bool,
    late: Option<Late>,
}

/// Why a question is not waited for any longer that no process has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// It had to begin by now, and was taken back.
    Overdue,
    /// The same, and it could not be taken back.
    InTime,
    /// The process takes too long to start.
    Start,
}

impl Asking<'_> {
    /// Writes it, and sees when the process has read of it. Returns only where there will be no answer.
    async fn write(&mut self, stdin: &mut ChildStdin, patience: Duration) {
        let mut late = pin!(sleep(patience));
        let by = self.begun.by();
        let mut overdue = pin!(async {
            match by {
                Some(by) => sleep_until(by).await,
                None => pending().await,
            }
        });
        loop {
            let is_whole = *self.written == self.question.len();
            tokio::select! {
                biased;
                more = stdin.write(&self.question[*self.written..]), if !is_whole => match more {
                    Ok(more @ 1..) => *self.written += more,
                    _ => return,
                },
                () = sleep(LOOK), if !self.is_begun => {
                    if !is_unread(stdin, *self.written) {
                        self.begin();
                    }
                }
                () = &mut overdue, if !self.is_begun => {
                    *self.written -= take_back(stdin, *self.written);
                    if *self.written == 0 || is_unread(stdin, *self.written) {
                        self.late = Some(if *self.written == 0 { Late::Overdue } else { Late::InTime });
                        return;
                    }
                    // It has read some of it, so it gets the rest.
                    self.begin();
                }
                () = &mut late, if !self.is_begun => {
                    if is_unread(stdin, *self.written) {
                        self.late = Some(Late::Start);
                        return;
                    }
                    self.begin();
                }
                else => pending::<()>().await,
            }
        }
    }

    fn begin(&mut self) {
        self.is_begun = true;
        self.begun.say();
    }
}

/// Whether all that was written to a process is still in its pipe.
fn is_unread(stdin: &ChildStdin, written: usize) -> bool {
    ioctl_fionread(stdin).ok() == Some(written as u64)
}

/// Takes what was written to a process out of its pipe again, as far as it has not read it. Gives how much that was.
fn take_back(stdin: &ChildStdin, written: usize) -> usize {
    // Another end of the same pipe; only where the system has such a name for it.
    let end = pipe::OpenOptions::new().open_receiver(format!("/proc/self/fd/{}", stdin.as_raw_fd()));
    let Ok(end) = end.and_then(pipe::Receiver::into_nonblocking_fd) else { return 0 };
    let mut taken = vec![0; written];
    File::from(end).read(&mut taken).unwrap_or(0)
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
