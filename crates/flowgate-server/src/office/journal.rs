//! The log is written beside the work: many entries in one transaction, in the order in which they came.
//!
//! An entry that must be there before something else is awaited; others are on their way, and are written before the server
//! ends in good order.

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
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::JoinHandle,
    time::{Duration, sleep},
};

use super::{Entry, Stage};
use crate::{clock, message::Space, metrics::Meter, terminal::say};

/// How many entries may be on their way before those who write them wait.
const WAITING: usize = 8192;
const BATCH: usize = 512;
/// How often a batch is tried while the store fails. Then it is dropped, which is said and counted: those who wait for it go on.
const TRIES: u32 = 30;

/// Takes entries. Cheap to clone; when the last clone is gone, what is left is written.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    entries: mpsc::Sender<Line>,
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
        (
            Journal { entries, space: Space::default(), counted: Arc::default() },
            tokio::spawn(write(store, meter, waiting)),
        )
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

    /// Writes an entry soon.
    pub(crate) async fn add(&self, task: TaskId, entry: &Entry) {
        self.count(entry.stage);
        self.put(Line { note: self.note(task, entry), written: None }).await;
    }

    /// Writes an entry soon that has nothing but its stage. `message` is the message as it is stored in this namespace, `at` when it was, in
    /// milliseconds since the Unix epoch.
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

async fn write(store: Arc<dyn Shelf>, meter: Arc<Meter>, mut waiting: mpsc::Receiver<Line>) {
    let mut batch = Vec::new();
    let mut dropped = 0;
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let (notes, written): (Vec<NewNote>, Vec<_>) =
            batch.drain(..).map(|line| (line.note, line.written)).unzip();
        let notes = notes.into();
        match write_batch(&*store, &notes).await {
            Ok(()) if dropped > 0 => {
                say(&format!("the log is written again; {dropped} of its lines were dropped"));
                dropped = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if dropped == 0 {
                    let first = notes.len();
                    say(&format!(
                        "{error}; so {first} lines of the log were dropped, and more will be until it can be written"
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
