//! What a store keeps beside tasks: notes about them, and documents of the server that uses the store.
//!
//! Owns the words of that second seam. Nothing here decides whether a task may start: a server that never
//! uses it claims and settles just the same.

use std::sync::Arc;

use flowgate_core::{Limits, RateLook, Tick};

use super::{
    runs::{Run, RunChange, RunOutcome, RunQuery, RunStep},
    seam::{Cancelled, Reply, Store},
    seen::{KeyLook, TaskLook},
};
use crate::{ledger::Ledger, task::TaskId, terms};

/// Something that happened to a task, in the words of the server that handles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNote {
    /// The task.
    pub task: TaskId,
    /// When it happened.
    pub at: Tick,
    /// What happened.
    pub body: Vec<u8>,
}

/// A note that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its number: later notes have higher ones.
    pub id: i64,
    /// The task.
    pub task: TaskId,
    /// When it happened.
    pub at: Tick,
    /// What happened.
    pub body: Vec<u8>,
}

/// Which notes to give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoteQuery {
    /// Of these tasks. Empty: of all.
    pub tasks: Vec<TaskId>,
    /// Written before this one.
    pub before: Option<i64>,
    /// How many at most.
    pub most: u32,
}

/// A small text under a name, for the server that uses the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What sort of document it is: its own name space.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its contents.
    pub body: Vec<u8>,
    /// How often it was written. Written with `Some`, it must be what it was: 0 for one that is not there yet.
    pub version: Option<i64>,
}

/// What a key has spent of its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpent {
    /// The key.
    pub key: KeyLook,
    /// What is left under the rate in force, if there is one: pinned, or the newest sent.
    pub rate: Option<RateLook>,
}

/// Which keys are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySort {
    /// All.
    #[default]
    All,
    /// Those with something in flight or in line.
    Busy,
    /// Those that are paused.
    Paused,
    /// Those with pinned limits.
    Pinned,
}

/// Which keys to give, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyQuery {
    /// Those with this in their name, whatever the case of its ASCII letters. Empty: all.
    pub search: String,
    /// Leaves out keys whose name begins with this. Empty: none.
    pub without: String,
    /// Which of them.
    pub sort: KeySort,
    /// From behind this one.
    pub after: String,
    /// How many at most.
    pub most: u32,
}

/// Some of the keys that were asked for. Their counts end at [`MOST_COUNTED`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys.
    pub keys: Vec<KeySpent>,
    /// Behind which one to go on. `None`: these are the last. There may be more even where a page is short: so that a rare
    /// name among very many keeps nobody else waiting, a page looks at a bounded number of names.
    pub next: Option<String>,
}

/// A list of keys counts the line of each up to here, so that a page costs the same however long the lines are.
pub const MOST_COUNTED: u32 = 20_000;

/// How much there is of what is kept. Dead tasks are counted up to [`MOST_COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys that are known.
    pub keys: u64,
    /// Keys that are paused.
    pub paused_keys: u64,
    /// Keys with pinned limits.
    pub pinned_keys: u64,
    /// Tasks that will not run again.
    pub dead: u64,
}

impl KeySpent {
    /// A key with what is left of the rate in force, by what was counted under its rates.
    pub(crate) fn of(key: KeyLook, rates: &str, now: Tick) -> Self {
        let ledger = Ledger::read(rates);
        let limits = terms::in_force(key.pinned, key.sent);
        let rate = limits.as_ref().and_then(Limits::rate).map(|rate| rate.look(ledger.spent(rate, now), now));
        KeySpent { key, rate }
    }
}

/// Tasks of one kind whose bodies begin in a certain way. No more than their first bytes is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindOf {
    /// The kind.
    pub kind: String,
    /// So many bytes of their bodies, at most 100, are passed over: bodies that have fewer are not meant.
    pub from: usize,
    /// Bytes that stand there. Empty: any.
    pub with: Vec<u8>,
    /// Bytes that do not stand there. Empty: any.
    pub without: Vec<u8>,
}

/// So much of a record is looked at.
pub(crate) const BEGINNING: usize = 256;

/// Where tasks are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Among {
    /// Those of a queue that will not run again, and were not cancelled.
    Dead {
        /// The queue.
        queue: String,
    },
    /// Those of a queue that stand in line without a key.
    Keyless {
        /// The queue.
        queue: String,
    },
}

/// What is left undone, for operators. Asking costs the same however much there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrears {
    /// Of the newest [`MOST_COUNTED`] tasks that will not run again, how many are of which queue.
    pub dead: Vec<(String, u64)>,
    /// The oldest task in line of the queue that was asked for, if it is one of the [`OLDEST_LOOKED_AT`]
    /// oldest tasks of the store that nobody holds. Its place is not counted: `ahead` is 0.
    pub oldest: Option<TaskLook>,
}

/// Among how many tasks the oldest in line is looked for: tasks with long delays may stand before it.
pub const OLDEST_LOOKED_AT: u32 = 1000;

/// What no store of tasks needs and every server does: logs, settings, lists.
pub trait Shelf: Store {
    /// The time, by the clock that decides when something is due.
    fn now(&self) -> Reply<'_, Tick>;

    /// Writes notes. They are shared, so that a caller that has to try again needs no copy.
    fn write_notes(&self, notes: Arc<[NewNote]>) -> Reply<'_, ()>;

    /// Notes, the newest first.
    fn notes(&self, query: NoteQuery) -> Reply<'_, Vec<Note>>;

    /// Writes a document. `false`: it is not the version that was asked for, and stays as it is.
    fn put_document(&self, document: Document) -> Reply<'_, bool>;

    /// A document.
    fn document(&self, kind: String, name: String) -> Reply<'_, Option<Document>>;

    /// Documents of a kind in the order of their names, from behind the one given.
    fn documents(&self, kind: String, after: String, most: u32) -> Reply<'_, Vec<Document>>;

    /// Removes a document. `false`: there was none.
    fn remove_document(&self, kind: String, name: String) -> Reply<'_, bool>;

    /// The same, if it still has this version. `false`: there is none, or somebody wrote it meanwhile.
    fn remove_document_at(&self, kind: String, name: String, version: i64) -> Reply<'_, bool>;

    /// Tasks that wait, are delayed or are held, in the order of their numbers, from behind the one given. Which place in its
    /// line each has is not counted: `ahead` is 0.
    fn live_tasks(&self, after: TaskId, most: u32) -> Reply<'_, Vec<TaskLook>>;

    /// The newest number that a task can have by now: whatever is sent from now on has a higher one.
    fn newest_task(&self) -> Reply<'_, TaskId>;

    /// Keys in the order of their names, from behind the one given.
    fn keys(&self, after: String, most: u32) -> Reply<'_, Vec<KeySpent>>;

    /// The keys with the most in line and in use together, then with the most delayed, then by name.
    fn busiest_keys(&self, most: u32) -> Reply<'_, Vec<KeySpent>>;

    /// One key.
    fn key_spent(&self, key: String) -> Reply<'_, Option<KeySpent>>;

    /// Keys by name and by what they do: a page costs the same however many there are.
    fn find_keys(&self, query: KeyQuery) -> Reply<'_, KeyPage>;

    /// These keys, as far as they are known. Their counts end at [`MOST_COUNTED`].
    fn keys_named(&self, names: Vec<String>) -> Reply<'_, Vec<KeySpent>>;

    /// How much there is; of keys, all but those whose names begin with any of these.
    fn census(&self, without: Vec<String>) -> Reply<'_, Census>;

    /// How many are of this kind, where they are asked for: counted among the newest [`MOST_COUNTED`] of the dead, or
    /// up to as many of a line.
    fn count_of(&self, kind: KindOf, among: Among) -> Reply<'_, u64>;

    /// What is left undone, in all and in this queue.
    fn arrears(&self, queue: String) -> Reply<'_, Arrears>;

    /// Cancels tasks as [`Store::cancel_all`] does; tasks that had not started leave nothing behind, as if
    /// each had been removed from the dead at the same moment.
    fn call_off(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>>;

    /// Removes a dead task. `false`: there was none.
    fn remove_dead(&self, id: TaskId) -> Reply<'_, bool> {
        let removed = self.remove_all_dead(vec![id]);
        Box::pin(async move { Ok(removed.await? > 0) })
    }

    /// Removes dead tasks, in one transaction: how many there were.
    fn remove_all_dead(&self, ids: Vec<TaskId>) -> Reply<'_, u64>;

    /// Changes runs, each of them wholly or not at all, in one transaction.
    fn change_runs(&self, changes: Vec<RunChange>) -> Reply<'_, Vec<RunOutcome>>;

    /// A run by its own name, with its steps in their order.
    fn run(&self, name: String) -> Reply<'_, Option<(Run, Vec<RunStep>)>>;

    /// Runs, the newest first.
    fn runs(&self, query: RunQuery) -> Reply<'_, Vec<Run>>;

    /// Which of these tasks stand in line or are delayed.
    fn waiting(&self, tasks: Vec<TaskId>) -> Reply<'_, Vec<TaskId>>;

    /// Removes some of the notes, dead tasks and ended runs older than this, and says how many. Runs are kept for as long as
    /// dead tasks.
    fn prune(&self, notes_before: Tick, dead_before: Tick) -> Reply<'_, u64>;
}
