//! Messages of a queue, one after the other: the next starts when this one has ended, its retries and its
//! callbacks included.
//!
//! Nothing of this holds a slot. A message that is to be tried again goes back to its place, and its queue's
//! key rests until then; while callbacks of a message are out, its queue rests until they end. A callback
//! asks for a short rest at a time, and asks again for as long as it goes on: so a crash leaves a short rest
//! behind at most.

use std::time::Duration;

use flowgate_tasks::{store::KeyChange, worker::Failure};
use ring::digest::{SHA256, digest};

use super::{handler::Courier, verdict::Verdict};
use crate::{
    message::Message,
    office::{Queue, RETRY, queue_key},
};

/// How long a callback that is in line, or under way, holds its queue without a word.
const GRACE: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(500);

impl Courier {
    /// Whether its queue has one at a time, so that there is an order to keep.
    pub(super) async fn is_in_order(&self, message: &Message) -> Result<bool, Failure> {
        let Some(queue) = &message.head.queue else { return Ok(false) };
        let queue = Queue::find(&*self.desk.store, queue).await?;
        Ok(queue.is_none_or(|queue| queue.parallelism == 1))
    }

    /// How long a message waits that is tried again. In a queue nobody overtakes: it goes back to its place at once,
    /// and its queue rests instead.
    pub(super) async fn wait_in_order(&self, message: &Message, wait: Duration) -> Result<Duration, Failure> {
        match &message.head.queue {
            Some(queue) if self.is_in_order(message).await? => {
                self.change(queue, KeyChange::Rest { by: RETRY, lasting: wait }).await?;
                Ok(Duration::ZERO)
            }
            _ => Ok(wait),
        }
    }

    /// What failed here and not at the endpoint, the store being away most likely, goes back to its place in its queue
    /// as well, or others would overtake it; after a moment, so that it does not go round and round.
    pub(super) async fn keep_its_place(&self, message: &Message, failure: Failure) -> Failure {
        if message.head.queue.is_none() || failure.is_final || failure.retry_after.is_some() {
            return failure;
        }
        tokio::time::sleep(A_MOMENT).await;
        failure.after(Duration::ZERO)
    }

    /// What the outcome of an attempt means for the queue that waits for this message.
    pub(super) async fn tell_queue(&self, message: &Message, verdict: &Verdict) -> Result<(), Failure> {
        let Some((queue, by)) = &message.head.holds else { return Ok(()) };
        let change = match verdict {
            Verdict::Again(wait) => KeyChange::Rest { by: *by, lasting: *wait + GRACE },
            Verdict::Delivered | Verdict::Failed => KeyChange::Wake { by: *by },
        };
        self.change(queue, change).await
    }

    /// The queue rests for the callback of this name, which is about to be stored; the number that it ends the rest by.
    /// It follows from the name, so one that is made again after a crash wants no rest of its own.
    pub(super) async fn hold_queue(
        &self,
        message: &Message,
        name: &str,
    ) -> Result<Option<(String, u32)>, Failure> {
        let Some(queue) = &message.head.queue else { return Ok(None) };
        let digest = digest(&SHA256, name.as_bytes());
        let number = digest.as_ref().iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte));
        let by = number.max(RETRY + 1);
        self.change(queue, KeyChange::Rest { by, lasting: GRACE }).await?;
        Ok(Some((queue.clone(), by)))
    }

    async fn change(&self, queue: &str, change: KeyChange) -> Result<(), Failure> {
        Ok(self.desk.store.change_key(queue_key(queue), change).await?)
    }
}
