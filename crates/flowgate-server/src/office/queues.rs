//! FIFO queues, as documents: their parallelism is a pinned limit of the queue's key.
//!
//! Owns that the two agree. A change is written into the document first, as under way, then made to the key,
//! then marked as made. Whoever finds a change under way, after a crash for instance, makes it. And it owns by
//! which number the rest ends that a queue has for a message.

use std::collections::BTreeMap;

use flowgate_core::Limits;
use flowgate_tasks::{
    TaskId,
    store::{Document, KeyChange, KeyLook, Shelf, StoreError},
};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::queue_key;
use crate::{clock, message::Message};

const KIND: &str = "queue";
/// More are not listed.
const MOST: u32 = 10_000;
/// The number of the rest that earlier versions had for whatever message of a queue was tried again.
const EARLIER: u32 = 0;

/// A rest of a queue: the queue, and the number that it ends by.
pub(crate) type QueueRest = (String, u32);

/// What a queue rests for. A message and an attempt at it have one callback of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestOf {
    /// A message of the queue, until it is tried again. Whoever cancels it ends this.
    Retry(TaskId),
    /// The callback of an attempt, by the message's id and how many had failed before. It begins together with what it is for,
    /// and that ends it, whatever becomes of the message.
    Callback(String, u32),
    /// The same, where no attempt is left.
    Failure(String, u32),
}

impl RestOf {
    /// Nobody else's.
    pub(crate) fn name(&self) -> String {
        match self {
            RestOf::Retry(task) => format!("retry/{task}"),
            RestOf::Callback(message, retried) => format!("callback/{message}/{retried}"),
            RestOf::Failure(message, retried) => format!("failure/{message}/{retried}"),
        }
    }

    /// The number that the rest ends by. It follows from the name, so whatever is made again after a crash wants no rest of its
    /// own; and it is nobody else's, so whoever ends it when its time has come ends no other.
    pub(crate) fn number(&self) -> u32 {
        let digest = digest(&SHA256, self.name().as_bytes());
        let number = digest.as_ref().iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte));
        number.max(EARLIER + 1)
    }
}

/// A queue. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) parallelism: u32,
    pub(crate) paused: bool,
    pub(crate) created: u64,
    pub(crate) updated: u64,
    /// What its key has perhaps not been told yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under_way: Option<UnderWay>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum UnderWay {
    Change,
    Removal,
}

impl Queue {
    pub(crate) async fn find(store: &dyn Shelf, name: &str) -> Result<Option<Self>, StoreError> {
        match Self::stored(store, name).await? {
            Some((queue, _)) if queue.under_way.is_some() => Self::settle(store, name).await,
            found => Ok(found.map(|(queue, _)| queue)),
        }
    }

    pub(crate) async fn all(store: &dyn Shelf) -> Result<Vec<Self>, StoreError> {
        let found = store.documents(KIND.into(), String::new(), MOST).await?;
        let found = found.iter().filter_map(|found| serde_json::from_slice::<Queue>(&found.body).ok());
        let mut queues = Vec::new();
        for queue in found {
            match queue.under_way {
                None => queues.push(queue),
                Some(_) => queues.extend(Self::settle(store, &queue.name).await?),
            }
        }
        Ok(queues)
    }

    /// Makes a queue with parallelism 1, unless there is one.
    pub(crate) async fn make(store: &dyn Shelf, name: &str) -> Result<(), StoreError> {
        if Self::find(store, name).await?.is_some() {
            return Ok(());
        }
        store.put_document(Queue::new(name).document(Some(0))).await.map(drop)
    }

    /// Makes a queue, or changes it; what is `None` stays as it is.
    pub(crate) async fn set(
        store: &dyn Shelf,
        name: &str,
        parallelism: Option<u32>,
        paused: Option<bool>,
    ) -> Result<(), StoreError> {
        loop {
            let found = Self::stored(store, name).await?;
            let version = found.as_ref().map_or(Some(0), |(_, version)| *version);
            let known =
                found.map(|(queue, _)| queue).filter(|queue| queue.under_way != Some(UnderWay::Removal));
            let mut queue = known.unwrap_or_else(|| Queue::new(name));
            queue.parallelism = parallelism.unwrap_or(queue.parallelism);
            queue.paused = paused.unwrap_or(queue.paused);
            queue.updated = clock::now();
            queue.under_way = Some(UnderWay::Change);
            if store.put_document(queue.document(version)).await? {
                return Self::settle(store, name).await.map(drop);
            }
        }
    }

    pub(crate) async fn remove(store: &dyn Shelf, name: &str) -> Result<(), StoreError> {
        loop {
            let Some((mut queue, version)) = Self::stored(store, name).await? else { return Ok(()) };
            queue.under_way = Some(UnderWay::Removal);
            if store.put_document(queue.document(version)).await? {
                return Self::settle(store, name).await.map(drop);
            }
        }
    }

    /// Whether its key, as it was looked at, has the limits and the pause of the document. One that was never changed has no
    /// pinned limit: what is sent to it brings a limit of one.
    pub(crate) fn agrees(&self, key: Option<&KeyLook>) -> bool {
        let pinned = key.and_then(|key| key.pinned.as_ref()).and_then(Limits::max).unwrap_or(1);
        pinned == self.parallelism && key.is_some_and(|key| key.is_paused) == self.paused
    }

    /// Makes the key what the document says, until nobody changes it meanwhile. Gives the queue as it is then.
    pub(crate) async fn settle(store: &dyn Shelf, name: &str) -> Result<Option<Self>, StoreError> {
        loop {
            let Some((mut queue, version)) = Self::stored(store, name).await? else { return Ok(None) };
            queue.apply(store).await?;
            let is_done = match queue.under_way.take() {
                Some(UnderWay::Removal) => {
                    let version = version.unwrap_or_default();
                    if store.remove_document_at(KIND.into(), name.to_owned(), version).await? {
                        return Ok(None);
                    }
                    false
                }
                Some(UnderWay::Change) => store.put_document(queue.document(version)).await?,
                // Somebody else was done before: what was told to the key here may be older than that.
                None => Self::stored(store, name).await?.is_some_and(|(_, known)| known == version),
            };
            if is_done {
                return Ok(Some(queue));
            }
        }
    }

    fn new(name: &str) -> Self {
        let now = clock::now();
        let (created, updated) = (now, now);
        Queue { name: name.to_owned(), parallelism: 1, paused: false, created, updated, under_way: None }
    }

    /// As it is in the store, with the version of that.
    async fn stored(store: &dyn Shelf, name: &str) -> Result<Option<(Self, Option<i64>)>, StoreError> {
        let found = store.document(KIND.into(), name.to_owned()).await?;
        Ok(found.and_then(|found| Some((serde_json::from_slice(&found.body).ok()?, found.version))))
    }

    /// What may rest for this message: its own queue, and, if it is a callback, the one that waits for it.
    pub(crate) fn rests_for(id: TaskId, message: &Message) -> Vec<QueueRest> {
        let own = message.head.queue.clone().map(|queue| (queue, RestOf::Retry(id).number()));
        own.into_iter().chain(message.head.holds.clone()).collect()
    }

    /// The rest that a server of an earlier version may have begun for a message that waits to be tried again.
    pub(crate) fn earlier_rest_for(message: &Message) -> Option<QueueRest> {
        message.head.queue.clone().map(|queue| (queue, EARLIER))
    }

    /// Nobody has to wait for these any more.
    pub(crate) async fn end_rests(
        store: &dyn Shelf,
        rests: impl IntoIterator<Item = QueueRest>,
    ) -> Result<(), StoreError> {
        let mut of_queues: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (queue, by) in rests {
            of_queues.entry(queue).or_default().push(by);
        }
        for (queue, by) in of_queues {
            store.change_key(queue_key(&queue), KeyChange::Wake { by }).await?;
        }
        Ok(())
    }

    async fn apply(&self, store: &dyn Shelf) -> Result<(), StoreError> {
        let is_removal = self.under_way == Some(UnderWay::Removal);
        let limits = match is_removal {
            true => KeyChange::Unpin,
            false => KeyChange::Pin(Limits::builder().max(self.parallelism).build()?),
        };
        store.change_key(queue_key(&self.name), limits).await?;
        if is_removal || self.parallelism > 1 {
            // There is no order to keep any more: nobody waits for a message that is tried again, or for a callback.
            store.change_key(queue_key(&self.name), KeyChange::WakeAll).await?;
        }
        let pause = if self.paused && !is_removal { KeyChange::Pause } else { KeyChange::Resume };
        store.change_key(queue_key(&self.name), pause).await
    }

    fn document(&self, version: Option<i64>) -> Document {
        let body = serde_json::to_vec(self).expect("a queue is plain data");
        Document { kind: KIND.into(), name: self.name.clone(), body, version }
    }
}

#[cfg(test)]
mod tests {
    use flowgate_tasks::store::{Sqlite, Store as _};

    use super::*;

    #[tokio::test]
    async fn s1_a_change_that_a_crash_cut_off_is_made_by_whoever_finds_it() {
        // Seen to fail: with `find` and `make` taking a document that is under way as it is.
        let store = Sqlite::in_memory().expect("a store in memory");
        for (name, under_way) in [("changed", UnderWay::Change), ("removed", UnderWay::Removal)] {
            Queue::set(&store, name, Some(2), Some(under_way == UnderWay::Removal)).await.expect("a store");
            // As a crash leaves it: the document is written, and nothing behind it was.
            let (mut queue, version) = Queue::stored(&store, name).await.expect("a store").expect("a queue");
            (queue.parallelism, queue.paused, queue.under_way) = (7, true, Some(under_way));
            assert!(store.put_document(queue.document(version)).await.expect("a store"));
        }
        let found = Queue::find(&store, "changed").await.expect("a store").expect("a queue");
        let key = store.look_at_key(queue_key("changed")).await.expect("a store");
        assert!(found.agrees(key.as_ref()) && found.paused && found.parallelism == 7, "{found:?} {key:?}");
        // The next message makes it anew, and it is not paused.
        Queue::make(&store, "removed").await.expect("a store");
        let found = Queue::find(&store, "removed").await.expect("a store").expect("a queue");
        let key = store.look_at_key(queue_key("removed")).await.expect("a store");
        assert!(found.agrees(key.as_ref()) && !found.paused && found.parallelism == 1, "{found:?} {key:?}");
    }
}
