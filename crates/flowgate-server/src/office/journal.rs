//! The log is written beside the work: many entries in one transaction, in the order in which they came.
//!
//! An entry that must be there before something else is awaited; others are on their way, and are written before the server
//! ends in good order. What every delivery writes that goes well waits a moment for more of its kind: a transaction for a few
//! entries costs the store nearly what one for hundreds does.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flowgate_tasks::{
    TaskId,
    store::{NewNote, Shelf, StoreError},
};
use tokio::{
    sync::{
        Notify,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::JoinHandle,
    time::{Duration, sleep, timeout},
};

use super::{Entry, Stage};
use crate::{clock, message::Space, metrics::Meter, terminal::say};

/// How many entries may be on their way before those who write them wait.
const WAITING: usize = 8192;
const BATCH: usize = 1024;
/// How long entries that nobody looks for wait for others.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a batch is tried while the store fails. Then it is dropped, which is said and counted: those who wait for it go on.
const TRIES: u32 = 30;

/// Takes entries. Cheap to clone; when the last clone is gone, what is left is written.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    entries: mpsc::Sender<Line>,
    /// Told of an entry that is wanted at once.
    hurry: Arc<Notify>,
    space: Space,
    counted: Arc<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    created: AtomicU64,
    delivered: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
}

/// What this server wrote into the log since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) created: u64,
    pub(crate) delivered: u64,
    pub(crate) retried: u64,
    pub(crate) failed: u64,
}

#[derive(Debug)]
struct Line {
    note: NewNote,
    written: Option<oneshot::Sender<()>>,
}

impl Journal {
    /// The journal of this store, and the task that writes it.
    pub(crate) fn start(store: Arc<dyn Shelf>, meter: Arc<Meter>) -> (Self, JoinHandle<()>) {
        let (entries, waiting) = mpsc::channel(WAITING);
        let hurry = Arc::new(Notify::new());
        let writing = tokio::spawn(write(store, meter, waiting, Arc::clone(&hurry)));
        (Journal { entries, hurry, space: Space::default(), counted: Arc::default() }, writing)
    }

    /// The same journal, for what happens in this namespace.
    pub(crate) fn within(&self, space: Space) -> Self {
        Journal { space, ..self.clone() }
    }

    /// What was written so far.
    pub(crate) fn tally(&self) -> Tally {
        let Counted { created, delivered, retried, failed } = &*self.counted;
        let [created, delivered, retried, failed] =
            [created, delivered, retried, failed].map(|count| count.load(Ordering::Relaxed));
        Tally { created, delivered, retried, failed }
    }

    /// One more line of this stage, whoever writes it.
    pub(super) fn count(&self, stage: Stage) {
        let counter = match stage {
            Stage::Created => &self.counted.created,
            Stage::Delivered => &self.counted.delivered,
            Stage::Retry => &self.counted.retried,
            Stage::Failed => &self.counted.failed,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes an entry without awaiting it: whoever caused it may look for it next.
    pub(crate) async fn add(&self, task: TaskId, entry: &Entry) {
        self.count(entry.stage);
        self.put(Line { note: self.note(task, entry), written: None }).await;
        self.hurry.notify_one();
    }

    /// Writes an entry in a moment, together with others: one that has nothing but its stage. `message` is the message as it is
    /// stored in this namespace, `at` when it was, in milliseconds since the Unix epoch.
    pub(crate) async fn add_stored(&self, task: TaskId, stage: Stage, message: &[u8], at: u64) {
        self.count(stage);
        let note = NewNote { task, at: clock::tick(at), body: Entry::plain_bytes(stage, message) };
        self.put(Line { note, written: None }).await;
    }

    /// Writes an entry, and returns when that is done, or cannot be.
    pub(crate) async fn add_now(&self, task: TaskId, entry: &Entry) {
        self.count(entry.stage);
        let (written, done) = oneshot::channel();
        let _ = self.entries.send(Line { note: self.note(task, entry), written: Some(written) }).await;
        self.hurry.notify_one();
        let _ = done.await;
    }

    /// Most of the time there is room, and nothing to wait for.
    async fn put(&self, line: Line) {
        if let Err(TrySendError::Full(line)) = self.entries.try_send(line) {
            let _ = self.entries.send(line).await;
        }
    }

    fn note(&self, task: TaskId, entry: &Entry) -> NewNote {
        let body = if entry.message.head.space == self.space {
            entry.to_bytes()
        } else {
            let mut entry = entry.clone();
            entry.message.head.space.clone_from(&self.space);
            entry.to_bytes()
        };
        NewNote { task, at: clock::tick(clock::now()), body }
    }
}

async fn write(
    store: Arc<dyn Shelf>,
    meter: Arc<Meter>,
    mut waiting: mpsc::Receiver<Line>,
    hurry: Arc<Notify>,
) {
    let mut batch = Vec::new();
    let mut dropped = 0;
    while next_batch(&mut waiting, &hurry, &mut batch).await {
        let (notes, written): (Vec<NewNote>, Vec<_>) =
            batch.drain(..).map(|line| (line.note, line.written)).unzip();
        let notes = notes.into();
        match write_batch(&*store, &notes).await {
            Ok(()) if dropped > 0 => {
                say(&format!("the log can be written again; {dropped} of its lines were dropped"));
                dropped = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if dropped == 0 {
                    let first = notes.len();
                    say(&format!(
                        "{error}; {first} lines of the log were dropped, and more will be until it can be written"
                    ));
                }
                dropped += notes.len() as u64;
                meter.lines_dropped(notes.len() as u64);
            }
        }
        for told in written.into_iter().flatten() {
            let _ = told.send(());
        }
    }
}

/// The entries that are written next; `false` if there will be none. One that is wanted at once may be among them, or come
/// meanwhile: then nothing else is waited for.
async fn next_batch(waiting: &mut mpsc::Receiver<Line>, hurry: &Notify, batch: &mut Vec<Line>) -> bool {
    let is_over = waiting.recv_many(batch, BATCH).await == 0;
    let has_time =
        batch.len() < BATCH && !waiting.is_closed() && batch.iter().all(|line| line.written.is_none());
    if has_time {
        let _ = timeout(PAUSE, hurry.notified()).await;
        while batch.len() < BATCH
            && let Ok(line) = waiting.try_recv()
        {
            batch.push(line);
        }
    }
    !is_over
}

async fn write_batch(store: &dyn Shelf, notes: &Arc<[NewNote]>) -> Result<(), StoreError> {
    let mut wait = Duration::from_millis(10);
    for _ in 1..TRIES {
        if store.write_notes(Arc::clone(notes)).await.is_ok() {
            return Ok(());
        }
        sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
    store.write_notes(Arc::clone(notes)).await
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::message::Message;

    fn line(task: i64) -> Line {
        let note = NewNote { task: TaskId(task), at: clock::tick(0), body: Vec::new() };
        Line { note, written: None }
    }

    fn tasks(batch: &mut Vec<Line>) -> Vec<i64> {
        batch.drain(..).map(|line| line.note.task.0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn f7_lines_of_the_log_that_nobody_waits_for_are_written_together() {
        // Seen to fail: with what is there written at once, the second was in a batch of its own; with each of the
        // three reasons not to wait left out.
        let (entries, mut waiting) = mpsc::channel(WAITING);
        let (hurry, mut batch) = (Notify::new(), Vec::new());
        entries.try_send(line(1)).expect("room");
        let more = async {
            sleep(PAUSE / 2).await;
            entries.try_send(line(2)).expect("room");
        };
        let (is_more, ()) = tokio::join!(next_batch(&mut waiting, &hurry, &mut batch), more);
        assert!(is_more);
        assert_eq!(tasks(&mut batch), [1, 2]);
        for task in 0..=BATCH as i64 {
            entries.try_send(line(task)).expect("room");
        }
        let full = next_batch(&mut waiting, &hurry, &mut batch).now_or_never();
        assert_eq!((full, batch.len()), (Some(true), BATCH), "a full batch waits for nothing");
        batch.clear();
        let awaited = Line { written: Some(oneshot::channel().0), ..line(0) };
        entries.try_send(awaited).expect("room");
        let awaited = next_batch(&mut waiting, &hurry, &mut batch).now_or_never();
        assert_eq!((awaited, batch.len()), (Some(true), 2), "nor does one with a line that is waited for");
        batch.clear();
        entries.try_send(line(1)).expect("room");
        drop(entries);
        let last = next_batch(&mut waiting, &hurry, &mut batch).now_or_never();
        assert_eq!((last, batch.len()), (Some(true), 1), "nothing more can come");
        batch.clear();
        assert!(!next_batch(&mut waiting, &hurry, &mut batch).await);
    }

    #[tokio::test(start_paused = true)]
    async fn f7_a_line_of_the_log_that_somebody_looks_for_waits_for_no_other() {
        // Seen to fail: without the word to `hurry`, of the one or of the other.
        let (entries, mut waiting) = mpsc::channel(WAITING);
        let hurry = Arc::new(Notify::new());
        let (space, counted) = (Space::default(), Arc::default());
        let journal = Journal { entries, hurry: Arc::clone(&hurry), space, counted };
        let entry = Entry::plain(Stage::Error, Message { head: Box::default(), body: Bytes::new() });
        for is_awaited in [false, true] {
            journal.add_stored(TaskId(1), Stage::Active, &[], 0).await;
            let mut batch = Vec::new();
            let mut gathering = Box::pin(next_batch(&mut waiting, &hurry, &mut batch));
            assert!((&mut gathering).now_or_never().is_none(), "nobody looks for the first");
            if is_awaited {
                let mut adding = Box::pin(journal.add_now(TaskId(2), &entry));
                assert!((&mut adding).now_or_never().is_none(), "it is not written yet");
            } else {
                journal.add(TaskId(2), &entry).await;
            }
            assert_eq!(gathering.now_or_never(), Some(true));
            assert_eq!(tasks(&mut batch), [1, 2]);
        }
    }
}
