//! The thread that waits for the disk.
//!
//! Owns when an answer is given: when all that it tells of is on disk, never before. The writer goes on with the next
//! transaction meanwhile, and what it commits while the disk is busy shares the next wait. So transactions themselves do not
//! wait for the disk (`synchronous = NORMAL`): a checkpoint does, before it moves anything, which keeps the file whole.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

/// Told whether what it tells of is kept.
pub(super) type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;

/// So many transactions may wait for the disk while it is busy with others; then the writer waits, and gathers more for the next.
const WAITING: usize = 2;

/// Where answers go. Cheap to clone.
#[derive(Clone)]
pub(super) struct Disk(Option<Waiting>);

#[derive(Clone)]
struct Waiting {
    answers: SyncSender<Vec<Answer>>,
    /// Transactions that can be seen, or are about to be, and are not on disk.
    behind: Arc<AtomicUsize>,
}

/// What the thread works with.
pub(super) struct Syncer {
    file: File,
    answers: Receiver<Vec<Answer>>,
    behind: Arc<AtomicUsize>,
}

impl Disk {
    /// For a store that has none.
    pub(super) fn none() -> Self {
        Disk(None)
    }

    /// For the file that transactions are written to, and what its thread has to run.
    pub(super) fn of(file: File) -> (Self, Syncer) {
        let (send, answers) = sync_channel(WAITING);
        let behind = Arc::new(AtomicUsize::new(0));
        let syncer = Syncer { file, answers, behind: Arc::clone(&behind) };
        (Disk(Some(Waiting { answers: send, behind })), syncer)
    }

    /// Commits by `commit`, and answers when that is on disk; or at once, if it failed.
    pub(super) fn commit(&self, answers: Vec<Answer>, commit: impl FnOnce() -> Result<(), String>) {
        let Disk(Some(waiting)) = self else { return tell(answers, &commit()) };
        // Before anybody can see it: one who reads it waits as well.
        waiting.behind.fetch_add(1, Ordering::SeqCst);
        match commit() {
            Ok(()) => waiting.send(answers),
            failed => {
                waiting.behind.fetch_sub(1, Ordering::SeqCst);
                tell(answers, &failed);
            }
        }
    }

    /// Answers when all that could be seen so far is on disk.
    pub(super) fn answer(&self, answer: Answer) {
        match self {
            Disk(Some(waiting)) if waiting.behind.load(Ordering::SeqCst) > 0 => {
                waiting.behind.fetch_add(1, Ordering::SeqCst);
                waiting.send(vec![answer]);
            }
            _ => answer(Ok(())),
        }
    }
}

impl Waiting {
    fn send(&self, answers: Vec<Answer>) {
        if let Err(refused) = self.answers.send(answers) {
            tell(refused.0, &Err("nobody waits for the disk any more".to_owned()));
        }
    }
}

impl Syncer {
    /// Until nobody can ask any more. A disk that failed once may have lost what it was given before, whatever it says
    /// later: from then on nothing is kept.
    pub(super) fn run(self, sync: impl Fn(&File) -> io::Result<()>) {
        let mut synced = Ok(());
        while let Ok(mut answers) = self.answers.recv() {
            let mut count = 1;
            while let Ok(more) = self.answers.try_recv() {
                answers.extend(more);
                count += 1;
            }
            if synced.is_ok() {
                let said =
                    |error| format!("the disk failed, and nothing is taken in until a restart: {error}");
                synced = sync(&self.file).map_err(said);
            }
            if synced.is_ok() {
                self.behind.fetch_sub(count, Ordering::SeqCst);
            }
            tell(answers, &synced);
        }
    }
}

fn tell(answers: Vec<Answer>, outcome: &Result<(), String>) {
    for answer in answers {
        answer(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, channel},
        thread,
    };

    use super::*;

    fn a_file() -> File {
        File::open("/dev/null").expect("it is there")
    }

    fn asked() -> (Answer, Receiver<Result<(), String>>) {
        let (tell, told) = channel();
        (Box::new(move |outcome| drop(tell.send(outcome))), told)
    }

    // Seen to fail: with the answers given in `commit`, the first was told before the disk was done.
    #[test]
    fn t5_nobody_is_answered_before_the_disk_has_it_and_a_reader_waits_for_what_it_saw() {
        let (disk, syncer) = Disk::of(a_file());
        let (go, gate) = channel::<()>();
        let thread = thread::spawn(move || syncer.run(|_| gate.recv().map_err(io::Error::other)));
        let (first, told_first) = asked();
        disk.commit(vec![first], || Ok(()));
        let (read, told_read) = asked();
        disk.answer(read);
        assert!(told_first.try_recv().is_err() && told_read.try_recv().is_err(), "nothing is on disk");
        go.send(()).expect("the disk waits");
        assert_eq!(told_first.recv(), Ok(Ok(())));
        // The reader's answer went along, or needs a turn of its own.
        let _ = go.send(());
        assert_eq!(told_read.recv(), Ok(Ok(())));
        let (refused, told) = asked();
        disk.commit(vec![refused], || Err("full".to_owned()));
        assert_eq!(told.try_recv(), Ok(Err("full".to_owned())), "what is not committed is told at once");
        drop((disk, go));
        thread.join().expect("it ends with the last who asks");
    }

    // Seen to fail: with `synced` forgotten after each turn, the second was told that it is kept.
    #[test]
    fn t5_a_disk_that_failed_once_keeps_nothing_more() {
        let (disk, syncer) = Disk::of(a_file());
        let failing = std::cell::Cell::new(true);
        let thread = thread::spawn(move || {
            syncer.run(|_| if failing.replace(false) { Err(io::Error::other("broken")) } else { Ok(()) });
        });
        for _ in 0..2 {
            let (answer, told) = asked();
            disk.commit(vec![answer], || Ok(()));
            let said = told.recv().expect("an answer").expect_err("it is not kept");
            assert!(said.contains("broken") && said.contains("restart"), "{said}");
        }
        let (read, told) = asked();
        disk.answer(read);
        assert!(told.recv().expect("an answer").is_err(), "what it saw is not kept either");
        drop(disk);
        thread.join().expect("it ends with the last who asks");
    }
}
