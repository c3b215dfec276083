//! The service that lets time pass in a store: delayed tasks join their lines, expired ones leave them, tasks of workers that
//! are gone go back.
//!
//! Every process that works on a store runs one; any number of them agree.

use std::{sync::Arc, time::Duration};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::store::{Store, Wake};

/// At least so often, whatever is known to be due.
const SLOWEST: Duration = Duration::from_secs(1);
/// At most so often, while there is nothing to do.
const FASTEST: Duration = Duration::from_millis(1);

/// Keeps up a store until it is dropped.
pub async fn keep_up(store: Arc<dyn Store>) {
    let mut wakes = store.wakes();
    loop {
        let pause = match store.upkeep().await {
            Ok(kept) if kept.due + kept.expired + kept.recovered > 0 => Duration::ZERO,
            Ok(kept) => kept.next.unwrap_or(SLOWEST).clamp(FASTEST, SLOWEST),
            // The store cannot be reached: whoever sends or claims says so.
            Err(_) => SLOWEST,
        };
        // A delay that is not over yet may be shorter than the pause.
        let _ = tokio::time::timeout(pause, delayed(&mut wakes)).await;
    }
}

async fn delayed(wakes: &mut Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Due | Wake::Missed) | Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
