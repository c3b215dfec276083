//! A send that claims: tasks that find a free worker in their own process are claimed by the transaction that
//! stores them.
//!
//! The claim is a turn of that worker, which begins with the send ([`transact`]). It waits for nobody: it
//! leaves locked rows to their holders. A failed claim never fails the send, which is then made again without
//! it.

use std::{collections::HashSet, sync::Arc};

use super::{
    connect::{Lease, Postgres, Shared},
    gather::{Begun, Filling},
    turn::{Turnout, transact},
};
use crate::store::{End, Settle, StoreError, Taken, Turn, Turned, Wake, Want, WorkerId};

/// Ends a transaction that claims for a worker, whichever way it begins.
pub(super) async fn claim(
    shared: &Shared,
    session: &Lease,
    taken: &Taken,
    sent: &Filling,
    begin: impl Future<Output = Result<Begun, StoreError>> + Send,
) -> Result<Turnout, StoreError> {
    let offer = &taken.offer;
    let want = Want { slots: offer.slots, per_queue: offer.per_queue, with_locks: true };
    let turn = Turn { want: Some(want), ..Turn::default() };
    Box::pin(transact(shared, session, offer.worker, (turn, HashSet::new()), Some(sent), begin)).await
}

/// The worker gets what was claimed for it, and the others of this process hear of what is left.
pub(super) fn hand_over(shared: &Arc<Shared>, taken: Option<Taken>, turnout: Option<Turnout>) {
    let (Some(taken), Some(turnout)) = (taken, turnout) else { return };
    let worker = taken.offer.worker;
    if let Err(Ok(turned)) = taken.tell(Ok(turnout.turned)) {
        tokio::spawn(send_back(Arc::clone(shared), worker, turned));
    }
    if turnout.makes_room {
        let _ = shared.wakes.send(Wake::Work);
    }
}

/// What was claimed for one who is gone goes back at once, and not when its lease is over.
async fn send_back(shared: Arc<Shared>, worker: WorkerId, turned: Turned) {
    let back = |task| Settle { task, end: End::Returned };
    let settles = turned.claimed.into_iter().map(back).collect();
    // If this fails, the lease is what is left.
    let _ = Postgres { shared }.take_turn(worker, Turn { settles, ..Turn::default() }).await;
}

/// Ends a transaction that failed, and answers for the offer it had. `Err`: it is not made again. Without its claim it is, for
/// that may be what failed; and if it `goes_on`, a lane having been swept away, or another transaction having gone first.
pub(super) async fn fail(
    session: &mut Lease,
    taken: Option<Taken>,
    error: StoreError,
    goes_on: bool,
) -> Result<(), StoreError> {
    let is_known = session.roll_back().await;
    match taken {
        None if goes_on => Ok(()),
        None => Err(error),
        Some(taken) if !is_known => {
            let _ = taken.tell(Err(error.clone()));
            Err(error)
        }
        Some(taken) if matches!(error, StoreError::Gone { .. }) => {
            let _ = taken.tell(Err(error));
            Ok(())
        }
        Some(taken) => {
            taken.give_back();
            Ok(())
        }
    }
}
