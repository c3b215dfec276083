//! What a store keeps beside tasks: notes about them, and documents of whoever uses the store.
//!
//! Owns the words of that second seam. Nothing here decides whether a task may start: a server that never uses it claims and
//! settles just the same.

use flowgate_core::{RateLook, Tick};

use super::seam::{KeyLook, Reply, Store, TaskLook};
use crate::task::TaskId;

/// Something that happened to a task, in the words of whoever handles it.
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
    /// At most so many.
    pub most: u32,
}

/// A small text under a name, for whoever uses the store.
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

/// What no store of tasks needs and every server does: logs, settings, lists.
pub trait Shelf: Store {
    /// Writes notes.
    fn write_notes(&self, notes: Vec<NewNote>) -> Reply<'_, ()>;

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

    /// Tasks that wait, are delayed or are held, in the order of their numbers, from behind the one given. Which place in its
    /// line each has is not counted: `ahead` is 0.
    fn live_tasks(&self, after: TaskId, most: u32) -> Reply<'_, Vec<TaskLook>>;

    /// Keys in the order of their names, from behind the one given.
    fn keys(&self, after: String, most: u32) -> Reply<'_, Vec<KeySpent>>;

    /// The keys with the most in line and in use together, then with the most delayed, then by name.
    fn busiest_keys(&self, most: u32) -> Reply<'_, Vec<KeySpent>>;

    /// One key.
    fn key_spent(&self, key: String) -> Reply<'_, Option<KeySpent>>;

    /// Removes a dead task. `false`: there was none.
    fn remove_dead(&self, id: TaskId) -> Reply<'_, bool>;

    /// Removes some of the notes and dead tasks older than this, and says how many.
    fn prune(&self, notes_before: Tick, dead_before: Tick) -> Reply<'_, u64>;
}
