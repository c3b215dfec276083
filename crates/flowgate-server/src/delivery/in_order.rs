//! Messages of a queue, one after the other: the next starts when this one has ended, its retries and its
//! callbacks included.
//!
//! Nothing of this holds a slot. A message that is to be tried again goes back to its place, and its queue's
//! key rests until then; while callbacks of a message are out, its queue rests until they end. Each of them says
//! for how long it may be out: until it is due, and, with each attempt, for as long as that may take. So a crash
//! leaves no longer rest behind than the callback has that is made again after it, and which ends it.

use std::time::Duration;

use flowgate_tasks::{
    TaskId,
    store::{KeyChange, State, StoreError},
    worker::Failure,
};

use super::{handler::Courier, verdict::Verdict};
use crate::{
    message::Message,
    office::{Accepted, Queue, QueueRest, queue_key},
};

/// For so long beyond what it takes by itself, a callback may be in line, or on its way from one place to another.
const GRACE: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(500);

impl Courier {
    /// Whether a queue has one at a time, so that there is an order to keep. One that is gone has none.
    async fn has_order(&self, queue: &str) -> Result<bool, Failure> {
        let queue = Queue::find(&*self.desk.store, queue).await?;
        Ok(queue.is_some_and(|queue| queue.parallelism == 1))
    }

    /// How long a message waits that is tried again. In a queue nobody overtakes: it goes back to its place at once,
    /// and its queue rests instead.
    pub(super) async fn wait_in_order(
        &self,
        task: TaskId,
        message: &Message,
        wait: Duration,
    ) -> Result<Duration, Failure> {
        match &message.head.queue {
            Some(queue) if self.rest(queue, Queue::retry_number(task), wait).await? => Ok(Duration::ZERO),
            _ => Ok(wait),
        }
    }

    /// A queue rests, if it has an order to keep; whether it does.
    async fn rest(&self, queue: &str, by: u32, lasting: Duration) -> Result<bool, Failure> {
        self.begin_rest(queue, by, KeyChange::Rest { by, lasting }).await
    }

    /// Whoever takes the order away wakes the queue, so it is asked for again when it rests.
    async fn begin_rest(&self, queue: &str, by: u32, rest: KeyChange) -> Result<bool, Failure> {
        if !self.has_order(queue).await? {
            return Ok(false);
        }
        self.change(queue, rest).await?;
        if self.has_order(queue).await? {
            return Ok(true);
        }
        self.change(queue, KeyChange::Wake { by: vec![by] }).await?;
        Ok(false)
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

    /// An attempt begins: the queue that waits for this message goes on waiting for as long as it may take.
    pub(super) async fn hold_on(&self, message: &Message) -> Result<(), Failure> {
        let Some((queue, by)) = &message.head.holds else { return Ok(()) };
        self.rest(queue, *by, message.head.spec.timeout() + GRACE).await.map(drop)
    }

    /// What the outcome of an attempt means for the queue that waits for this message.
    pub(super) async fn tell_queue(&self, message: &Message, verdict: &Verdict) -> Result<(), Failure> {
        let Some((queue, by)) = &message.head.holds else { return Ok(()) };
        match verdict {
            Verdict::Again(wait) => self.rest(queue, *by, *wait + GRACE).await.map(drop),
            Verdict::Delivered | Verdict::Failed => {
                self.change(queue, KeyChange::Wake { by: vec![*by] }).await
            }
        }
    }

    /// The queue rests for the callback of this name, which is about to be stored, if there is an order to keep; the number
    /// that it ends the rest by.
    pub(super) async fn hold_queue(
        &self,
        message: &Message,
        callback: &Message,
        name: &str,
    ) -> Result<Option<QueueRest>, Failure> {
        let Some(queue) = &message.head.queue else { return Ok(None) };
        let by = Queue::rest_number(name);
        let wait = Duration::from_millis(callback.not_before().saturating_sub(callback.head.created));
        // The message may be made again after a crash, while the callback is out: then its rest lasts longer.
        let rest = KeyChange::RestOn { by, lasting: wait + GRACE };
        let rests = self.begin_rest(queue, by, rest).await?;
        Ok(rests.then(|| (queue.clone(), by)))
    }

    /// Ends that rest where no such callback comes: it could not be stored, is a duplicate of another message, or was stored
    /// before a crash and has ended since.
    pub(super) async fn hold_for_what_comes(
        &self,
        held: Option<QueueRest>,
        accepted: &Result<Accepted, StoreError>,
        is_own_id: bool,
    ) -> Result<(), Failure> {
        let Some((queue, by)) = held else { return Ok(()) };
        let comes = match accepted {
            Ok(callback) if !callback.is_duplicate => true,
            Ok(callback) if is_own_id => {
                let look = self.desk.store.look_at_task(callback.id).await?;
                look.is_some_and(|look| !matches!(look.state, State::Done { .. } | State::Dead { .. }))
            }
            _ => false,
        };
        if comes { Ok(()) } else { self.change(&queue, KeyChange::Wake { by: vec![by] }).await }
    }

    async fn change(&self, queue: &str, change: KeyChange) -> Result<(), Failure> {
        Ok(self.desk.store.change_key(queue_key(queue), change).await?)
    }
}
