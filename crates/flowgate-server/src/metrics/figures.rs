//! What the store says, not asked more often than it should be.
//!
//! Owns the figures of the last look. A scrape that comes while a look is under way waits for that one. A
//! store that does not answer in time is away; old figures are never told as if they were new.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowgate_tasks::store::{
    Arrears, Document, OLDEST_LOOKED_AT, QueueLook, Shelf, StoreError, TaskLook, WorkerLook,
};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    clock::{self, Stopwatch},
    delivery::{KIND, QUEUE},
    message::Message,
    metrics::Meter,
    office::Desk,
};

/// The store is asked at most so often.
const FRESH: Duration = Duration::from_secs(5);
/// And readiness so often: it has to notice sooner.
const READY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);
/// No more of a queue's line is counted: what a look costs must not grow with what waits.
pub(crate) const MOST_OF_A_LINE: u32 = 100_000;

/// The store at one moment.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) cluster: (u32, Option<u32>),
    pub(super) queues: Vec<QueueLook>,
    pub(super) workers: Vec<WorkerLook>,
    /// How many tasks of which queue will not run again.
    pub(super) dead: Vec<(String, u64)>,
    /// How long ago the oldest message in line might have started; `None`: that is not known.
    pub(super) oldest: Option<Duration>,
    pub(super) seen: Stopwatch,
}

/// When somebody asked last, and what was said.
type Last<T> = Arc<Mutex<Option<(Stopwatch, T)>>>;

/// Looks at a store.
#[derive(Clone)]
pub(crate) struct Watch {
    store: Arc<dyn Shelf>,
    meter: Arc<Meter>,
    last: Last<Option<Arc<Figures>>>,
    ready: Last<Result<(), String>>,
}

impl Watch {
    pub(super) fn new(desk: &Desk) -> Self {
        let (store, meter) = (Arc::clone(&desk.store), Arc::clone(&desk.meter));
        Watch { store, meter, last: Arc::default(), ready: Arc::default() }
    }

    /// The store's figures, a few seconds old at most; `None` if it is away.
    ///
    /// Cancel safety: dropped, the next who asks looks anew.
    pub(super) async fn figures(&self) -> Option<Arc<Figures>> {
        let mut last = self.last.lock().await;
        if let Some((asked, figures)) = &*last
            && asked.elapsed() < FRESH
        {
            return figures.clone();
        }
        let asked = Stopwatch::start();
        let looked = timeout(PATIENCE, self.look()).await;
        let figures = looked.ok().and_then(Result::ok).map(Arc::new);
        *last = Some((asked, figures.clone()));
        figures
    }

    async fn look(&self) -> Result<Figures, StoreError> {
        let arrears = self.store.arrears(QUEUE.to_owned());
        let (cluster, queues, workers, Arrears { dead, oldest }) = tokio::try_join!(
            self.store.cluster(),
            self.store.queues_counted(MOST_OF_A_LINE),
            self.store.workers(),
            arrears
        )?;
        let oldest = match oldest {
            Some(oldest) => age(oldest),
            // All that nobody holds was looked at: none of it is in line.
            None => {
                let unheld: u64 = queues.iter().map(|queue| queue.waiting + queue.delayed).sum();
                (unheld < u64::from(OLDEST_LOOKED_AT)).then_some(Duration::ZERO)
            }
        };
        Ok(Figures { cluster, queues, workers, dead, oldest, seen: Stopwatch::start() })
    }

    /// Whether the store answers and takes what is written, and why not.
    ///
    /// Cancel safety: as [`Watch::figures`].
    pub(super) async fn ready(&self) -> Result<(), String> {
        let mut last = self.ready.lock().await;
        if let Some((asked, answer)) = &*last
            && asked.elapsed() < READY
        {
            return answer.clone();
        }
        let asked = Stopwatch::start();
        // What a database says may name more than a stranger should know.
        let answer = match timeout(PATIENCE, self.ask()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(words)) => Err(words.to_owned()),
            Err(_) => Err(format!("the store has not answered for {PATIENCE:?}")),
        };
        *last = Some((asked, answer.clone()));
        answer
    }

    /// Something is written only where the latest write failed: whether it was the write or the store, and whether that is over.
    async fn ask(&self) -> Result<(), &'static str> {
        self.store.cluster().await.map_err(|_| "the store cannot be used")?;
        if self.meter.writes.have_failed() {
            let (kind, name) = ("server".to_owned(), "probe".to_owned());
            let probe = Document { kind, name, body: Vec::new(), version: None };
            self.store.put_document(probe).await.map_err(|error| match is_full(&error) {
                true => "the store can be read and not written: its disk is full",
                false => "the store can be read and not written",
            })?;
        }
        Ok(())
    }
}

/// Whether it has no room: as SQLite says it, and PostgreSQL.
fn is_full(error: &StoreError) -> bool {
    let text = error.to_string();
    ["disk is full", "(53100)"].iter().any(|words| text.contains(words))
}

/// How long ago a message might have started, whatever namespace it is of.
fn age(look: TaskLook) -> Option<Duration> {
    let record = look.record.filter(|record| record.kind == KIND)?;
    let message = Message::from_bytes(&Bytes::from(record.body)).ok()?;
    Some(Duration::from_millis(clock::now().saturating_sub(message.not_before())))
}
