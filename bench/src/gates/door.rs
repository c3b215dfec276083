//! A door: what ours and tokio's semaphore have in common, for cases whose code is the same for both.

use std::{future::Future, sync::Arc};

use flowgate::{Gate, Pass};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) trait Door: Clone + Send + Sync + 'static {
    type Pass: Send;

    fn pass(&self) -> impl Future<Output = Self::Pass> + Send;
}

impl Door for Gate {
    type Pass = Pass;

    async fn pass(&self) -> Pass {
        self.enter().await.expect("the gate is open and its line is not bounded")
    }
}

impl Door for Arc<Semaphore> {
    type Pass = OwnedSemaphorePermit;

    async fn pass(&self) -> OwnedSemaphorePermit {
        Arc::clone(self).acquire_owned().await.expect("the semaphore is open")
    }
}
