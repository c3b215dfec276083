//! How long deliveries took lately, from the log: who waits is told from it when to expect its turn.
//!
//! Owns how much of the log is read for that. It reads the newest part of it, a bounded one, whatever else there is.

use std::{collections::HashMap, time::Duration};

use flowgate_core::Tick;
use flowgate_tasks::{
    TaskId,
    explain::{Served, ServiceTimes},
    store::{NoteQuery, Of, Reply, Shelf, StoreError},
};

use super::{Entry, Stage, queue_key};
use crate::message::{Message, Space};

/// So many are enough for a mean.
const ENOUGH: u32 = 50;
/// More of the log is not read.
const MOST_NOTES: usize = 2000;
/// Pages begin small: a note may have a large body.
const FIRST_PAGE: u32 = 20;
const LARGEST_PAGE: u32 = 500;
const SMALL: usize = 1 << 20;

/// The record of a store, as a namespace sees it.
pub(crate) struct Recorded<'a> {
    store: &'a dyn Shelf,
    /// Whose names are asked for. `None`: names as the store has them.
    space: Option<Space>,
}

impl<'a> Recorded<'a> {
    /// For names as this namespace calls them.
    pub(crate) fn within(store: &'a dyn Shelf, space: Space) -> Self {
        Recorded { store, space: Some(space) }
    }

    /// For names as the store has them.
    pub(crate) fn whole(store: &'a dyn Shelf) -> Self {
        Recorded { store, space: None }
    }

    async fn read(&self, of: Of) -> Result<Option<Served>, StoreError> {
        let wanted = match (&of, &self.space) {
            (Of::Key(key), Some(space)) => Some(space.put(key.clone())),
            (Of::Key(key), None) => Some(key.clone()),
            _ => None,
        };
        let (mut ends, mut spans): (HashMap<TaskId, Tick>, Vec<Duration>) = (HashMap::new(), Vec::new());
        let (mut before, mut page, mut seen) = (None, FIRST_PAGE, 0);
        while seen < MOST_NOTES && spans.len() < ENOUGH as usize {
            let notes = self.store.notes(NoteQuery { tasks: Vec::new(), before, most: page }).await?;
            let is_last = notes.len() < page as usize;
            let size: usize = notes.iter().map(|note| note.body.len()).sum();
            (before, seen) = (notes.last().map(|note| note.id), seen + notes.len());
            // From the newest to the oldest: the end of an attempt comes before its beginning.
            for note in notes {
                let Ok(entry) = Entry::from_bytes(note.body) else { continue };
                match entry.stage {
                    Stage::Delivered | Stage::Error => drop(ends.insert(note.task, note.at)),
                    Stage::Active => {
                        let Some(end) = ends.remove(&note.task) else { continue };
                        let is_wanted = wanted.is_none() || key(&entry.message) == wanted;
                        spans.extend(is_wanted.then(|| end.since(note.at)));
                    }
                    _ => {}
                }
            }
            if is_last {
                break;
            }
            page = if size < SMALL { (page * 5).min(LARGEST_PAGE) } else { FIRST_PAGE };
        }
        let count = u32::try_from(spans.len()).unwrap_or(u32::MAX);
        let mean = spans.iter().sum::<Duration>().checked_div(count);
        Ok(mean.map(|mean| Served { mean, count }))
    }
}

/// The key that a message waited under, as the store has it.
fn key(message: &Message) -> Option<String> {
    let head = &message.head;
    let own =
        head.queue.as_deref().map(queue_key).or_else(|| head.spec.flow.as_ref().map(|flow| flow.key.clone()));
    own.map(|own| head.space.put(own))
}

impl ServiceTimes for Recorded<'_> {
    fn recent(&self, of: Of) -> Reply<'_, Option<Served>> {
        Box::pin(self.read(of))
    }
}
