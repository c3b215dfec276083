//! What a worker tells its operator: that its store fails or cannot be kept up, that it answers again, which
//! tasks failed and which are dead.
//!
//! Owns how often news is told, and the task that tells it: a listener that is slow or panics holds up no
//! task. A store that fails is told once until it answers, tasks ten in a second; more of them are counted.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::Instant,
};

use super::{clock, lease::OnDrop};
use crate::{
    explain::span,
    record::Parts,
    store::{Claimed, End, Settle, Store, StoreError, Unread},
    task::TaskId,
};

/// How many news may be on their way, and how long it is between two tasks that are told.
const WAITING: usize = 16;
/// So many of these places are left to what is worse than a task that runs again.
const KEPT: usize = 8;
const PAUSE: Duration = Duration::from_millis(100);
/// A store that fails now and then is told so often at most.
const OUTAGE: Duration = Duration::from_secs(10);
/// So often upkeep fails before it is told, a second each time: by then a store that is away is known to be.
const BEHIND: u32 = 3;
/// So many limits are remembered that were told of.
const UNREAD: usize = 1000;
/// How long the last of them may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// So much of an error is told.
const LINE: usize = 200;

/// What a worker tells its operator. As text it is one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum News {
    /// The store failed. The worker asks again until it answers.
    StoreFailed {
        /// Why.
        error: StoreError,
    },
    /// The store answers again.
    StoreAnswers,
    /// Upkeep failed, though the store answers: delayed tasks, expiries, tasks of workers that are gone. It is tried
    /// again until it succeeds.
    UpkeepFailed {
        /// Why.
        error: StoreError,
    },
    /// Somebody has something locked that a part of upkeep waits for: tasks of a worker that is gone, say. All the rest goes
    /// on. It is tried again until it succeeds.
    UpkeepHeldUp {
        /// What was waited for in vain.
        error: StoreError,
    },
    /// The worker has ended, and the store did not hear that it leaves. It holds nothing any more, or what it lost with its
    /// lease.
    Unheard {
        /// Why.
        error: StoreError,
    },
    /// Limits of a key cannot be read. Tasks that wait under them are passed over, and only those. Told once.
    Unread(Unread),
    /// A task failed here and will run again.
    Retried {
        /// The task.
        id: TaskId,
        /// Its queue, unless it was removed meanwhile.
        queue: Option<String>,
        /// Its key.
        key: Option<String>,
        /// Which start it was.
        attempt: u32,
        /// How many it has.
        max_attempts: u32,
        /// How long it waits before the next one.
        wait: Duration,
        /// What this run said.
        error: String,
        /// How many others have failed and will run again since the last one that was told.
        others: u64,
    },
    /// A task failed here and will not run again.
    Dead {
        /// The task.
        id: TaskId,
        /// Its queue, unless it was removed meanwhile.
        queue: Option<String>,
        /// Its key.
        key: Option<String>,
        /// How often it was started.
        attempts: u32,
        /// What its last run said.
        error: String,
        /// How many others have died since the last one that was told.
        others: u64,
    },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::StoreFailed { error } => write!(f, "{error}; retrying until it answers"),
            News::StoreAnswers => f.write_str("the store answers again"),
            News::UpkeepFailed { error } => write!(
                f,
                "upkeep fails, so delayed tasks, expiries and tasks of lost workers wait: {error}; retrying until it \
                 succeeds"
            ),
            News::UpkeepHeldUp { error } => {
                write!(
                    f,
                    "another transaction has locked what a part of upkeep waits for, and everything else goes on: "
                )?;
                match error {
                    StoreError::Database { why, .. } => f.write_str(why)?,
                    error => error.fmt(f)?,
                }
                f.write_str("; retrying until it succeeds")
            }
            News::Unheard { error } => write!(
                f,
                "the store did not hear that this worker has ended, and finds out when its lease is over: {error}"
            ),
            News::Unread(Unread { key, text }) => write!(
                f,
                "the limits of key {key} cannot be read: {text:?}; work under them keeps waiting, and everything else \
                 goes on. A newer version wrote them, or somebody by hand: `flowgate explain` says more"
            ),
            News::Retried { id, queue, key, attempt, max_attempts, wait, error, others } => {
                let wait = span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                let what = format_args!("failed at start {attempt} of {max_attempts}, next in {wait}");
                one(f, *id, (queue, key), what, error, *others)
            }
            News::Dead { id, queue, key, attempts, error, others } => {
                let times = if *attempts == 1 { "attempt" } else { "attempts" };
                one(f, *id, (queue, key), format_args!("is dead after {attempts} {times}"), error, *others)
            }
        }
    }
}

/// What became of one task.
fn one(
    f: &mut fmt::Formatter<'_>,
    id: TaskId,
    (queue, key): (&Option<String>, &Option<String>),
    what: fmt::Arguments<'_>,
    error: &str,
    others: u64,
) -> fmt::Result {
    write!(f, "task {id}")?;
    if let Some(queue) = queue {
        write!(f, " of queue {queue}")?;
    }
    if let Some(key) = key {
        write!(f, ", key {key},")?;
    }
    let line = error.lines().next().unwrap_or_default();
    let told: String = line.chars().take(LINE).collect();
    let rest = if told.len() < error.len() { "…" } else { "" };
    write!(f, " {what}: {told}{rest}")?;
    if others > 0 {
        write!(f, " (and {others} others before it, not listed)")?;
    }
    Ok(())
}

pub(super) type Listener = Arc<dyn Fn(&News) + Send + Sync>;

/// Takes news, if anybody listens. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Teller {
    way: Option<(Sender<News>, Arc<Mutex<State>>)>,
}

#[derive(Default)]
struct State {
    /// Whether it was told that the store fails, and not yet that it answers again.
    is_away: bool,
    told_away: Option<Instant>,
    /// How often upkeep failed while the store answered, and how often a part of it was held up.
    behind: u32,
    held_up: u32,
    /// How many dead tasks were not told, and how many that run again.
    untold: u64,
    untold_retried: u64,
    /// What was told of limits that cannot be read.
    unread: HashSet<Unread>,
}

impl Teller {
    /// A teller, and the task that tells what it takes.
    pub(super) fn start(listener: Option<Listener>, store: &Arc<dyn Store>) -> (Self, Telling) {
        let Some(listener) = listener else { return (Teller::default(), Telling(None)) };
        let (news, waiting) = mpsc::channel(WAITING);
        let telling = tokio::spawn(tell(listener, Arc::clone(store), waiting));
        let end = OnDrop(telling.abort_handle());
        (Teller { way: Some((news, Arc::default())) }, Telling(Some((telling, end))))
    }

    /// The store answered, or did not.
    pub(super) fn heard<T>(&self, answer: &Result<T, StoreError>) {
        let Some((news, state)) = &self.way else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Err(error @ StoreError::Database { .. }) => {
                let is_news = state.told_away.is_none_or(|told| told.elapsed() >= OUTAGE);
                let told = News::StoreFailed { error: error.clone() };
                if !state.is_away && is_news && news.try_send(told).is_ok() {
                    (state.is_away, state.told_away) = (true, Some(clock::now()));
                }
            }
            Ok(_) if state.is_away => state.is_away = news.try_send(News::StoreAnswers).is_err(),
            _ => {}
        }
    }

    /// Upkeep was done, but for what was held up; or was not. A store that is away is told by those who wait for it.
    pub(super) fn kept(&self, answer: Result<Option<&StoreError>, &StoreError>) {
        let Some((news, state)) = &self.way else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let (times, told) = match answer {
            Ok(None) => return (state.behind, state.held_up) = (0, 0),
            Ok(Some(error)) => {
                state.behind = 0;
                (&mut state.held_up, News::UpkeepHeldUp { error: error.clone() })
            }
            Err(_) if state.is_away => return,
            Err(error) => (&mut state.behind, News::UpkeepFailed { error: error.clone() }),
        };
        *times = times.saturating_add(1);
        if *times == BEHIND && news.try_send(told).is_err() {
            *times = BEHIND - 1;
        }
    }

    /// The store did not hear that the worker leaves.
    pub(super) fn unheard(&self, error: StoreError) {
        if let Some((news, _)) = &self.way {
            // One who is that far behind is told of something else.
            let _ = news.try_send(News::Unheard { error });
        }
    }

    /// These limits were passed over. Each is told once, unless there are very many.
    pub(super) fn unread(&self, unread: Vec<Unread>) {
        let Some((news, state)) = self.way.as_ref().filter(|_| !unread.is_empty()) else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        for unread in unread {
            if state.unread.len() >= UNREAD {
                state.unread.clear();
            }
            if !state.unread.contains(&unread) && news.try_send(News::Unread(unread.clone())).is_ok() {
                state.unread.insert(unread);
            }
        }
    }

    /// This was settled: it may be that it failed, or that it will not run again.
    pub(super) fn settled(&self, settle: &Settle) {
        let Some((news, state)) = &self.way else { return };
        let Settle { task, end } = settle;
        let error = match end {
            End::Dead { error } => error,
            End::Failed { error, .. } if settle.is_last() => error,
            End::Failed { error, retry_after } => return self.retried(task, error, *retry_after),
            _ => return,
        };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, attempts, error) = (task.id, task.attempt, error.clone());
        let told = News::Dead { id, queue: None, key: None, attempts, error, others: state.untold };
        state.untold = if news.try_send(told).is_ok() { 0 } else { state.untold + 1 };
    }

    /// This failed, and runs again after this wait.
    fn retried(&self, task: &Claimed, error: &str, wait: Duration) {
        let Some((news, state)) = &self.way else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if news.capacity() <= KEPT {
            state.untold_retried += 1;
            return;
        }
        let max_attempts = Parts::of(&task.record).map_or(task.attempt, |parts| parts.retry.max_attempts);
        let (id, attempt, error, others) = (task.id, task.attempt, error.to_owned(), state.untold_retried);
        let told = News::Retried { id, queue: None, key: None, attempt, max_attempts, wait, error, others };
        state.untold_retried = if news.try_send(told).is_ok() { 0 } else { others + 1 };
    }
}

/// The task that tells. Dropped, it tells nothing more.
pub(super) struct Telling(Option<(JoinHandle<()>, OnDrop)>);

impl Telling {
    /// Waits until all is told.
    pub(super) async fn end(self) {
        if let Some((telling, _end)) = self.0 {
            // A listener that panicked has said so.
            let _ = tokio::time::timeout(PATIENCE, telling).await;
        }
    }
}

async fn tell(listener: Listener, store: Arc<dyn Store>, mut waiting: Receiver<News>) {
    while let Some(mut news) = waiting.recv().await {
        if let News::Retried { id, queue, key, .. } | News::Dead { id, queue, key, .. } = &mut news {
            if let Ok(Some(look)) = store.look_at_task(*id).await {
                (*queue, *key) = (Some(look.queue), look.key);
            }
            listener(&news);
            if !waiting.is_closed() {
                tokio::time::sleep(PAUSE).await;
            }
            continue;
        }
        listener(&news);
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::{
        record::Record,
        store::{Place, Sqlite},
        task::Retry,
    };

    fn failed(id: i64, attempt: u32) -> Settle {
        let (retry, kind) = (Retry { max_attempts: 2, ..Retry::default() }, "one".into());
        let record = Record { kind, body: Vec::new(), retry, timeout: None, keep: None }.to_bytes().into();
        let place = Place { lane: 1, queue: 1, key: None };
        let task = Claimed { id: TaskId(id), lease: id, attempt, weight: 1, good_until: None, record, place };
        Settle { task, end: End::Failed { error: format!("one\ntwo {id}"), retry_after: Duration::ZERO } }
    }

    fn away() -> Result<(), StoreError> {
        Err(StoreError::Database { doing: "reading", why: "gone".to_owned() })
    }

    #[tokio::test]
    async fn s1_what_a_worker_tells_is_bounded_whatever_happens() {
        // Seen to fail: with every failure of the store told, it was told twice; with no place kept, tasks that run again left
        // none to those that are dead.
        let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
        let told = Arc::<Mutex<Vec<String>>>::default();
        let hears = Arc::clone(&told);
        let listener: Listener = Arc::new(move |news| hears.lock().expect("whole").push(news.to_string()));
        let (teller, telling) = Teller::start(Some(listener), &store);
        for answer in [away(), away(), Ok(()), away(), Ok(())] {
            teller.heard(&answer);
        }
        let are_told = async |count: usize| {
            while told.lock().expect("whole").len() < count {
                tokio::task::yield_now().await;
            }
        };

        for id in 0..1000 {
            teller.settled(&failed(id, 1));
        }
        for id in 1..=1000 {
            teller.settled(&failed(id, 2));
        }
        are_told(WAITING).await;
        teller.settled(&failed(1001, 2));
        teller.settled(&failed(1002, 1));
        drop(teller);
        telling.end().await;
        let said = told.lock().expect("whole").clone();
        assert_eq!(said.len(), WAITING + 2, "{said:#?}");
        let first = "the store failed while reading: gone; retrying until it answers";
        let retried = "task 0 failed at start 1 of 2, next in 0 ms: one…";
        assert_eq!(said[..3], [first, "the store answers again", retried]);
        assert_eq!(said[WAITING - KEPT], "task 1 is dead after 2 attempts: one…", "places were left for it");
        let last = "task 1001 is dead after 2 attempts: one… (and 992 others before it, not listed)";
        assert_eq!(said[WAITING], last);
        let last =
            "task 1002 failed at start 1 of 2, next in 0 ms: one… (and 994 others before it, not listed)";
        assert_eq!(said[WAITING + 1], last);
    }

    #[tokio::test]
    async fn s1_upkeep_that_fails_is_told_once_while_the_store_answers() {
        // Seen to fail: with nothing told of upkeep, nobody knew; with each failure told, it was told nine times.
        let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
        let told = Arc::<Mutex<Vec<String>>>::default();
        let hears = Arc::clone(&told);
        let listener: Listener = Arc::new(move |news| hears.lock().expect("whole").push(news.to_string()));
        let (teller, telling) = Teller::start(Some(listener), &store);
        teller.heard(&away());
        (0..9).for_each(|_| teller.kept(Err(&away().expect_err("a failure"))));
        teller.heard(&Ok(()));
        (0..7).for_each(|_| teller.kept(Err(&away().expect_err("a failure"))));
        teller.kept(Ok(None));
        (0..2).for_each(|_| teller.kept(Err(&away().expect_err("a failure"))));
        drop(teller);
        telling.end().await;
        let said = told.lock().expect("whole").clone();
        assert_eq!(said.len(), 3, "{said:#?}");
        let upkeep = "upkeep fails, so delayed tasks, expiries and tasks of lost workers wait: the store failed while \
            reading: gone; retrying until it succeeds";
        assert_eq!(said[1..], ["the store answers again", upkeep]);
    }
    #[tokio::test]
    async fn s1_upkeep_that_is_held_up_is_told_once_and_not_as_a_failure() {
        // Seen to fail: with what was held up told as a failure, it was said that all of upkeep waits.
        let store: Arc<dyn Store> = Arc::new(Sqlite::in_memory().expect("a store"));
        let told = Arc::<Mutex<Vec<String>>>::default();
        let hears = Arc::clone(&told);
        let listener: Listener = Arc::new(move |news| hears.lock().expect("whole").push(news.to_string()));
        let (teller, telling) = Teller::start(Some(listener), &store);
        let locked = StoreError::Database { doing: "reading", why: "a lock timeout (55P03)".to_owned() };
        (0..7).for_each(|_| teller.kept(Ok(Some(&locked))));
        (0..7).for_each(|_| teller.kept(Err(&away().expect_err("a failure"))));
        (0..7).for_each(|_| teller.kept(Ok(Some(&locked))));
        drop(teller);
        telling.end().await;
        let said = told.lock().expect("whole").clone();
        let held_up = "another transaction has locked what a part of upkeep waits for, and everything else goes on: \
            a lock timeout (55P03); retrying until it succeeds";
        assert_eq!(said.len(), 2, "{said:#?}");
        assert_eq!(said[0], held_up);
        assert!(said[1].starts_with("upkeep fails"), "{said:#?}");
    }
}
