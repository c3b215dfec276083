//! A worker's lease: taken, renewed, and known to be over before the store gives what it held to others.

use std::sync::Arc;

use flowgate_core::relied_on;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::{clock, news::Teller, options::WorkerOptions, service::LATE};
use crate::store::{NewWorker, Store, StoreError, WorkerId};

/// A worker's own view of its lease: a renewal counts from when it was asked for, and not for all of its time, so that
/// it ends here before it ends in the store.
pub(super) struct Lease {
    until: watch::Receiver<Option<Instant>>,
    beats: OnDrop,
}

/// Ends a task of the runtime with whoever holds it.
pub(super) struct OnDrop(pub(super) AbortHandle);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Lease {
    /// The first one: whoever opened the store may have lost it since.
    pub(super) async fn take_when_there(
        store: &Arc<dyn Store>,
        options: &WorkerOptions,
        teller: &Teller,
    ) -> Result<(WorkerId, Self), StoreError> {
        loop {
            match Lease::take(store, options, teller).await {
                Err(StoreError::Database { .. }) => tokio::time::sleep(LATE).await,
                taken => return taken,
            }
        }
    }

    pub(super) async fn take(
        store: &Arc<dyn Store>,
        options: &WorkerOptions,
        teller: &Teller,
    ) -> Result<(WorkerId, Self), StoreError> {
        let asked = clock::now();
        let new = NewWorker {
            name: options.name.clone(),
            slots: options.slots(),
            queues: options.queues.clone(),
            lease: options.lease,
        };
        let registered = store.register(new).await;
        teller.heard(&registered);
        let worker = registered?;
        let (told, until) = watch::channel(Some(asked + relied_on(options.lease)));
        let (store, teller, lease) = (Arc::clone(store), teller.clone(), options.lease);
        let beats = tokio::spawn(async move {
            loop {
                tokio::time::sleep(lease / 3).await;
                let asked = clock::now();
                let renewed = store.beat(worker).await;
                teller.heard(&renewed);
                match renewed {
                    Ok(true) => drop(told.send(Some(asked + relied_on(lease)))),
                    Ok(false) | Err(StoreError::Gone { .. }) => {
                        let _ = told.send(None);
                        return;
                    }
                    // It is tried again; if it stays so, the lease ends by itself.
                    Err(_) => {}
                }
            }
        });
        Ok((worker, Lease { until, beats: OnDrop(beats.abort_handle()) }))
    }

    /// Ends it for good. It may only look over from here, the store having been away: renewed once more, it would keep
    /// in the store what the worker has given up.
    pub(super) fn end(&mut self) {
        self.beats.0.abort();
        self.until = watch::channel(None).1;
    }

    /// Whether it is over at this very moment. A process that was stopped for a while goes on wherever it was, whatever is due.
    pub(super) fn is_over(&self) -> bool {
        self.until.borrow().is_none_or(|until| until <= clock::now())
    }

    /// Completes when the lease is over.
    pub(super) async fn lost(&mut self) {
        loop {
            let Some(until) = *self.until.borrow_and_update() else { return };
            tokio::select! {
                () = sleep_until(until) => return,
                changed = self.until.changed() => if changed.is_err() { sleep_until(until).await; return },
            }
        }
    }
}
