//! How a worker ends: it takes nothing more, and at the deadline stops what still runs.
//!
//! Owns what is stopped and what goes back as it was. It never asks the store: the next turn tells it.

use super::Desk;
use crate::worker::{clock, held::Stopped};

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
}
