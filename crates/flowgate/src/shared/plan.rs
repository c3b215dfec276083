//! One lane's part of a round: what would become of it, and what the store has to be told.

use super::{
    book::Item,
    document::{Document, Fate, Turn},
    store::{Seen, Swap},
};

pub(super) struct Plan {
    pub(super) item: Item,
    pub(super) version: u64,
    pub(super) next: u64,
    pub(super) before: Document,
    pub(super) after: Document,
    pub(super) turn: Turn,
    pub(super) seen: Seen,
    /// Whether the document was asked for, or only known from before.
    pub(super) is_loaded: bool,
}

impl Plan {
    /// Whether something has to be swapped. Where an exit and an entry leave the document as it was, and it was not
    /// asked for just now, too: others may have joined the line, and then the entry is not first. And where an earlier swap
    /// without an answer may still be done: then what it says would be in place of what is true by now.
    pub(super) fn is_change(&self) -> bool {
        self.before != self.after
            || (!self.is_loaded && self.turn.fates.contains(&Fate::Granted))
            || self.item.doubted == Some(self.version)
    }

    pub(super) fn swap(&self) -> Option<Swap> {
        self.is_change().then(|| Swap {
            name: self.item.name.to_string(),
            expected: self.version,
            version: self.next,
            document: self.after.to_bytes(),
            members: self.after.members(),
            rests_at: self.after.rests_at(),
            woken: self.turn.woken.clone(),
        })
    }
}
