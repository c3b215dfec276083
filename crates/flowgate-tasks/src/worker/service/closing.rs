//! How a worker ends: it takes nothing more, and at the deadline stops what still runs.
//!
//! Owns what is stopped, what goes back as it was, and the last words to the store. Before those it never asks the store:
//! the next turn tells it.

use tokio::time::timeout;

use super::{Desk, GOODBYE};
use crate::{
    store::StoreError,
    worker::{clock, held::Stopped},
};

impl Desk {
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.wants_locks = false;
        self.return_stock();
        self.stop_at = Some(clock::now() + self.options.drain);
    }

    /// As if the drain deadline were over: nothing at hand takes the place of what ended.
    pub(super) async fn stop_at_once(&mut self) {
        self.hand_back(None);
        self.close();
        self.stop().await;
    }

    pub(super) async fn stop(&mut self) {
        (self.stop_at, self.is_stopped) = (None, true);
        self.hand_back(None);
        let Stopped { again, dead } = self.held.stop().await;
        self.ending.stopped.extend(again);
        self.ending.stopped_dead.extend(dead);
    }

    /// Says goodbye. Nothing is lost if the store does not hear it: what ended here is settled.
    pub(super) async fn leave(&mut self) {
        let left = async {
            if self.is_unsure && !self.is_out {
                // It holds nothing, so what the store has of it never started: that goes back as it was. If this fails, it
                // is taken for lost.
                let _ = self.store.reconcile(self.worker, Vec::new()).await;
            }
            self.store.leave(self.worker).await
        };
        let late =
            || StoreError::Database { doing: "removing a worker", why: "it does not answer".to_owned() };
        if let Err(error) = timeout(GOODBYE, left).await.unwrap_or_else(|_| Err(late())) {
            self.teller.unheard(error);
        }
    }
}
