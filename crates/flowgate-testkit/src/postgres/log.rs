//! What the server says: whether it is ready, whether it is gone, and its last words.
//!
//! Every process of the server holds the other end of the pipe, so its end means that all of them are gone.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, PipeReader},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

/// Part of the line that says so, in every version since 14 and without translation.
const READY: &str = "database system is ready to accept connections";
const KEPT: usize = 30;

/// The log of one life of the server.
#[derive(Clone)]
pub(super) struct Log(Arc<Shared>);

struct Shared {
    said: Mutex<Said>,
    changed: Condvar,
}

#[derive(Default)]
struct Said {
    last: VecDeque<String>,
    is_ready: bool,
    is_gone: bool,
}

impl Log {
    /// Reads to the end, in a thread of its own.
    pub(super) fn follow(pipe: PipeReader) -> Self {
        let log = Log(Arc::new(Shared { said: Mutex::default(), changed: Condvar::new() }));
        let told = log.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                told.hear(String::from_utf8_lossy(&line).into_owned());
            }
            told.lock().is_gone = true;
            told.0.changed.notify_all();
        });
        log
    }

    fn hear(&self, line: String) {
        let mut said = self.lock();
        if line.contains(READY) {
            said.is_ready = true;
            self.0.changed.notify_all();
        }
        if said.last.len() == KEPT {
            said.last.pop_front();
        }
        said.last.push_back(line);
    }

    /// Waits until it takes connections. `false`: it is gone, or too slow.
    pub(super) fn is_ready_within(&self, bound: Duration) -> bool {
        self.wait(bound, |said| said.is_ready || said.is_gone).is_ready
    }

    /// Waits until all of its processes are gone. `false`: it is too slow.
    pub(super) fn is_gone_within(&self, bound: Duration) -> bool {
        self.wait(bound, |said| said.is_gone).is_gone
    }

    /// Its last lines.
    pub(super) fn last_words(&self) -> String {
        Vec::from(self.lock().last.clone()).join("\n")
    }

    fn wait(&self, bound: Duration, is_over: impl Fn(&Said) -> bool) -> MutexGuard<'_, Said> {
        let waited = self.0.changed.wait_timeout_while(self.lock(), bound, |said| !is_over(said));
        waited.expect("no panic under the log's lock").0
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.said.lock().expect("no panic under the log's lock")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Write, pipe},
        time::Duration,
    };

    use super::{KEPT, Log};

    #[test]
    fn it_is_ready_when_it_says_so_and_gone_when_the_pipe_ends() {
        let (reader, mut writer) = pipe().unwrap();
        let log = Log::follow(reader);
        for number in 0..=KEPT {
            writeln!(writer, "line {number}").unwrap();
        }
        writeln!(writer, "LOG:  database system is ready to accept connections").unwrap();
        assert!(log.is_ready_within(Duration::from_secs(10)));
        assert!(!log.is_gone_within(Duration::ZERO));
        drop(writer);
        assert!(log.is_gone_within(Duration::from_secs(10)));
        assert_eq!(log.last_words().lines().count(), KEPT);
        assert!(log.last_words().starts_with("line 2\n"));
    }

    #[test]
    fn one_that_ends_is_never_ready() {
        let (reader, writer) = pipe().unwrap();
        let log = Log::follow(reader);
        drop(writer);
        assert!(!log.is_ready_within(Duration::from_secs(10)));
    }
}
