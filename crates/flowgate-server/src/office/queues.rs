//! FIFO queues, as documents: their parallelism is a pinned limit of the queue's key.

use flowgate_core::Limits;
use flowgate_tasks::store::{Document, KeyChange, Shelf, StoreError};
use serde::{Deserialize, Serialize};

use super::queue_key;
use crate::{clock, message::Message};

const KIND: &str = "queue";
/// More are not listed.
const MOST: u32 = 10_000;
/// The number of the rest of a queue whose message is tried again; there is one at a time.
pub(crate) const RETRY: u32 = 0;

/// A queue. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) parallelism: u32,
    pub(crate) paused: bool,
    pub(crate) created: u64,
    pub(crate) updated: u64,
}

impl Queue {
    pub(crate) async fn find(store: &dyn Shelf, name: &str) -> Result<Option<Self>, StoreError> {
        let found = store.document(KIND.into(), name.to_owned()).await?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.body).ok()))
    }

    pub(crate) async fn all(store: &dyn Shelf) -> Result<Vec<Self>, StoreError> {
        let found = store.documents(KIND.into(), String::new(), MOST).await?;
        Ok(found.iter().filter_map(|found| serde_json::from_slice(&found.body).ok()).collect())
    }

    /// Makes a queue with parallelism 1, unless there is one.
    pub(crate) async fn make(store: &dyn Shelf, name: &str) -> Result<(), StoreError> {
        if store.document(KIND.into(), name.to_owned()).await?.is_some() {
            return Ok(());
        }
        let now = clock::now();
        let queue =
            Queue { name: name.to_owned(), parallelism: 1, paused: false, created: now, updated: now };
        store.put_document(queue.document(Some(0))).await.map(drop)
    }

    /// Makes a queue, or changes it; what is `None` stays as it is.
    pub(crate) async fn set(
        store: &dyn Shelf,
        name: &str,
        parallelism: Option<u32>,
        paused: Option<bool>,
    ) -> Result<Self, StoreError> {
        loop {
            let found = store.document(KIND.into(), name.to_owned()).await?;
            let version = found.as_ref().map_or(Some(0), |found| found.version);
            let known: Option<Queue> = found.and_then(|found| serde_json::from_slice(&found.body).ok());
            let now = clock::now();
            let queue = Queue {
                name: name.to_owned(),
                parallelism: parallelism.or(known.as_ref().map(|known| known.parallelism)).unwrap_or(1),
                paused: paused.or(known.as_ref().map(|known| known.paused)).unwrap_or(false),
                created: known.map_or(now, |known| known.created),
                updated: now,
            };
            if store.put_document(queue.document(version)).await? {
                queue.apply(store).await?;
                return Ok(queue);
            }
        }
    }

    pub(crate) async fn remove(store: &dyn Shelf, name: &str) -> Result<(), StoreError> {
        store.remove_document(KIND.into(), name.to_owned()).await?;
        store.change_key(queue_key(name), KeyChange::Unpin).await?;
        store.change_key(queue_key(name), KeyChange::Resume).await
    }

    /// What waited for this message goes on without it.
    pub(crate) async fn go_on_without(store: &dyn Shelf, message: &Message) -> Result<(), StoreError> {
        let own = message.head.queue.as_ref().map(|queue| (queue, RETRY));
        let held = message.head.holds.as_ref().map(|(queue, by)| (queue, *by));
        for (queue, by) in own.into_iter().chain(held) {
            store.change_key(queue_key(queue), KeyChange::Wake { by }).await?;
        }
        Ok(())
    }

    async fn apply(&self, store: &dyn Shelf) -> Result<(), StoreError> {
        let limits = Limits::builder().max(self.parallelism).build()?;
        store.change_key(queue_key(&self.name), KeyChange::Pin(limits)).await?;
        let pause = if self.paused { KeyChange::Pause } else { KeyChange::Resume };
        store.change_key(queue_key(&self.name), pause).await
    }

    fn document(&self, version: Option<i64>) -> Document {
        let body = serde_json::to_vec(self).expect("a queue is plain data");
        Document { kind: KIND.into(), name: self.name.clone(), body, version }
    }
}
