//! How long deliveries took lately, by the log: from it, a waiting message is told when to expect its turn.
//!
//! Owns how much of the log is read for that: its newest part, a bounded one, whatever else there is.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use flowgate_core::Tick;
use flowgate_tasks::{
    TaskId,
    explain::{Served, ServiceTimes, quoted},
    store::{NoteQuery, Of, Reply, Shelf, StoreError, TaskLook},
};

use super::{Entry, Stage, queue_key};
use crate::{
    delivery::KIND,
    message::{Message, Space},
};

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

    fn key_named(&self, key: &str) -> String {
        self.space.as_ref().map_or_else(|| key.to_owned(), |space| space.put(key.to_owned()))
    }

    fn revived(&self, look: &TaskLook) -> String {
        let record = look.record.as_ref().filter(|record| record.kind == KIND);
        let message = record.and_then(|record| Message::from_bytes(&Bytes::from(record.body.clone())).ok());
        match message.map(|message| message.head.part) {
            // What it says to `retry` would be run for nobody: its run has ended.
            Some(Some(part)) => {
                let run = quoted(&part.id);
                format!(
                    "`flowgate run resume {run}` goes on with its run from there, `flowgate run restart {run}` begins it again"
                )
            }
            Some(None) => {
                "`flowgate dlq retry` sends it again, as a new message; `flowgate dlq list` has its id"
                    .to_owned()
            }
            None => format!("`flowgate task retry {}` sends it back to its line, as new", look.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use flowgate_tasks::{
        NewTask,
        store::{Sqlite, Store},
    };

    use super::*;
    use crate::message::{Part, Role};

    #[test]
    fn t8_a_command_that_is_suggested_names_the_key_as_the_store_has_it() {
        // Seen to fail: with the name as the namespace calls it, the command would end the pause of another's key.
        let store = Sqlite::in_memory().expect("a store");
        let space = Space::read("preview").expect("a name");
        assert_eq!(Recorded::within(&store, space).key_named("nsk"), "@preview/nsk");
        assert_eq!(Recorded::within(&store, Space::default()).key_named("nsk"), "nsk");
        assert_eq!(Recorded::whole(&store).key_named("@preview/nsk"), "@preview/nsk");
    }

    #[tokio::test]
    async fn t8_what_is_dead_is_sent_on_its_way_by_the_command_that_can() {
        // Seen to fail: with `task retry` for all, the step of a run was tried again for nobody.
        let store = Sqlite::in_memory().expect("a store");
        let mut message = Message { head: Default::default(), body: Bytes::new() };
        let plain = message.to_bytes();
        let part =
            Part { run: "own".to_owned(), id: "wfr_1".to_owned(), role: Role::Step, step: String::new() };
        message.head.part = Some(part);
        let tasks = [(KIND, plain), (KIND, message.to_bytes()), ("other", Vec::new())];
        let tasks = tasks.into_iter().map(|(kind, body)| NewTask::new(kind, body)).collect();
        let mut told = Vec::new();
        for sent in store.send(tasks).await.expect("sent") {
            let look = store.look_at_task(sent.id).await.expect("a look").expect("it is there");
            told.push(Recorded::whole(&store).revived(&look));
        }
        assert!(told[0].starts_with("`flowgate dlq retry` "), "{told:?}");
        assert!(told[1].starts_with("`flowgate run resume wfr_1` "), "{told:?}");
        assert!(told[2].starts_with("`flowgate task retry 3` "), "{told:?}");
    }
}
