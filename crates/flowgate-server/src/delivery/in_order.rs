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
    message::{Dedupe, Message},
    office::{Accepted, Queue, QueueRest, RestOf, queue_key},
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
            Some(queue) if self.rest(queue, RestOf::Retry(task).number(), wait).await? => Ok(Duration::ZERO),
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

    /// Stores a callback of a message of this queue, which rests for it, if there is an order to keep.
    ///
    /// Cancel safety: once begun it goes to its end. A message that is cancelled loses its delivery at any moment; in between,
    /// its queue would rest for what nobody stores.
    pub(super) async fn accept_in_order(
        &self,
        queue: String,
        mut callback: Message,
        rest: RestOf,
    ) -> Result<Result<Accepted, StoreError>, Failure> {
        let courier = self.clone();
        // One for each delivery. That of one which was cancelled is waited for by nobody, not even by a stop; it ends by itself,
        // with its two writes. Cut off between them, it leaves what a crash there leaves: a rest that lasts until its own end.
        let storing = tokio::spawn(async move {
            let held = courier.hold_queue(queue, &callback, &rest).await?;
            let is_own_id = callback.head.spec.dedupe.is_none();
            callback.head.holds.clone_from(&held);
            callback.head.spec.dedupe.get_or_insert_with(|| Dedupe::Own(rest.name()));
            let accepted = courier.desk.accept(callback).await;
            courier.hold_for_what_comes(held, &accepted, is_own_id).await?;
            Ok(accepted)
        });
        storing.await.unwrap_or_else(|_| Err(Failure::new("its callback was not stored")))
    }

    /// The queue rests for a callback that is about to be stored; the number that it ends the rest by.
    async fn hold_queue(
        &self,
        queue: String,
        callback: &Message,
        rest: &RestOf,
    ) -> Result<Option<QueueRest>, Failure> {
        let by = rest.number();
        let wait = Duration::from_millis(callback.not_before().saturating_sub(callback.head.created));
        // The message may be made again after a crash, while the callback is out: then its rest lasts longer.
        let rest = KeyChange::RestOn { by, lasting: wait + GRACE };
        let rests = self.begin_rest(&queue, by, rest).await?;
        Ok(rests.then_some((queue, by)))
    }

    /// Ends that rest where no such callback comes: it could not be stored, is a duplicate of another message, or was stored
    /// before a crash and has ended since.
    async fn hold_for_what_comes(
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

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::Arc, time::Duration};

    use bytes::Bytes;
    use flowgate_tasks::store::Sqlite;
    use futures_util::future::poll_immediate;
    use tokio::{sync::watch, time::timeout};

    use super::*;
    use crate::{
        delivery::Egress,
        message::{Head, Spec, Start},
        office::Desk,
    };

    fn message(queue: Option<&str>, spec: Spec) -> Message {
        let (url, queue) = ("http://127.0.0.1:9/".to_owned(), queue.map(str::to_owned));
        Message { head: Head { url, queue, spec, ..Head::default() }.into(), body: Bytes::new() }
    }

    #[tokio::test]
    async fn f7_a_queue_rests_for_no_callback_of_a_message_that_was_cancelled_before_it_was_stored() {
        // Seen to fail: with the callback stored by the delivery itself, the queue rested for a day, and there was none.
        let store = Arc::new(Sqlite::in_memory().expect("a store in memory"));
        let (desk, _log) = Desk::open(store, false).await.expect("a desk");
        let (_closes, closing) = watch::channel(false);
        let courier = Courier::new(desk.clone(), Egress::straight(), closing);
        Queue::make(&*desk.store, "q").await.expect("a store");
        let second = desk.accept(message(Some("q"), Spec::default())).await.expect("a store").id;
        let is_resting = async || {
            let standing = desk.store.standing(second).await.expect("a store").expect("it waits");
            standing.under.resting.is_some()
        };
        let in_a_day = Spec { start: Some(Start::After(86_400_000)), ..Spec::default() };
        {
            let rest = RestOf::Callback("msg_1".to_owned(), 0);
            let mut storing = pin!(courier.accept_in_order("q".to_owned(), message(None, in_a_day), rest));
            // Step by step, until the queue rests: then whoever delivers is stopped.
            while !is_resting().await && poll_immediate(&mut storing).await.is_none() {}
            assert!(is_resting().await);
        }
        let callback = async {
            loop {
                let found = desk.store.live_tasks(second, 1).await.expect("a store").pop();
                if let Some(callback) = found.and_then(|look| desk.message_of(&look)) {
                    return callback;
                }
            }
        };
        let callback = timeout(Duration::from_secs(30), callback).await.expect("it was stored");
        courier.tell_queue(&callback, &Verdict::Delivered).await.expect("a store");
        assert!(!is_resting().await, "it ends with the callback");
    }
}
