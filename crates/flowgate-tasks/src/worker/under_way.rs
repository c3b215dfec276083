//! A turn of a worker that the store has not answered yet.

use std::pin::Pin;

use tokio::time::Instant;

use crate::store::{Claimed, Offered, Settle, StoreError, Turned};

/// A turn under way, and what it tells the store, in case that is not heard.
pub(super) struct UnderWay {
    pub(super) reply: Coming,
    pub(super) asked: Instant,
    pub(super) settles: Vec<Settle>,
    pub(super) starts: Vec<Claimed>,
}

/// Where the outcome of a turn comes from.
pub(super) enum Coming {
    Turn(Pin<Box<dyn Future<Output = Result<Turned, StoreError>> + Send>>),
    /// A send that finds this offer, if any does.
    Send(Offered),
}

impl Coming {
    /// When a send asked the store, if that began the turn.
    pub(super) fn asked(&self) -> Option<Instant> {
        match self {
            Coming::Turn(_) => None,
            Coming::Send(offered) => offered.asked(),
        }
    }
}

/// What came of it. Pending while there is none.
pub(super) async fn pending_turn(turn: &mut Option<UnderWay>) -> Result<Turned, StoreError> {
    match turn.as_mut().map(|turn| &mut turn.reply) {
        Some(Coming::Turn(reply)) => reply.await,
        Some(Coming::Send(offered)) => offered.answer().await,
        None => std::future::pending().await,
    }
}
