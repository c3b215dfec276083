//! What the store has to be told: one lane's part of a round, with what would become of the lane; and limits.

use super::{
    book::Item,
    document::{Declared, Document, Fate, Turn},
    name,
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
    /// What would become of the lane that is kept so; `None`, if that is less than the process was told.
    pub(super) fn new(
        item: Item,
        (version, before): (u64, Document),
        next: u64,
        seen: Seen,
        is_loaded: bool,
        declared: &Declared,
    ) -> Option<Self> {
        let mut after = before.clone();
        let turn = after.turn(declared, &item.stake, &seen.dead, seen.now)?;
        Some(Plan { item, version, next, before, after, turn, seen, is_loaded })
    }

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

/// These limits for those that are kept.
pub(super) fn declaration(declared: Declared, expected: u64, version: u64) -> Swap {
    Swap {
        name: name::LIMITS.to_owned(),
        expected,
        version,
        document: declared.to_bytes(),
        members: Vec::new(),
        rests_at: declared.opens,
        woken: Vec::new(),
    }
}
