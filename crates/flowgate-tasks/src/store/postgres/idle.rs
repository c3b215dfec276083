//! Lanes that came up short become idle, so that no turn looks at them.
//!
//! Done by one who has their rows alone, so that no sender is in the middle of adding something; and after the turn has
//! replied, on its connection, so that no task waits for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    connect::{Lease, Shared},
    session::flight,
};
use crate::store::{StoreError, Wake};

const OWN_LANES: &str =
    "SELECT id FROM lanes WHERE id = ANY($1) AND state = 1 ORDER BY id FOR UPDATE SKIP LOCKED";
const IDLE_LANES: &str = "UPDATE lanes SET state = 0 WHERE id = ANY($1) AND state = 1 \
    AND NOT EXISTS (SELECT FROM tasks WHERE lane = lanes.id AND place IS NOT NULL \
    AND (good_until IS NULL OR good_until > now_ns($2))) RETURNING id";

pub(super) const STATEMENTS: [&str; 2] = [OWN_LANES, IDLE_LANES];

/// Lanes that had less than they might have started, and the connection of the turn that found this.
pub(super) struct Short {
    pub(super) lanes: Vec<i64>,
    pub(super) session: Lease,
    /// Whether the worker was told to look again anyway.
    pub(super) asks_again: bool,
}

/// What became of them.
enum Found {
    Idle,
    /// Some have something in line by now.
    InLine,
    /// A sender has some of them, for who knows how long.
    Shared,
}

/// Makes them idle. If some could not be, workers are woken: nobody else would tell them.
pub(super) async fn settle(shared: Arc<Shared>, short: Short) {
    let asks_again = short.asks_again;
    match make_idle(&shared, short).await {
        Ok(Found::Idle) => shared.turning.idling.rest(),
        Ok(_) if asks_again => {}
        Ok(Found::InLine) => {
            shared.turning.idling.rest();
            let _ = shared.wakes.send(Wake::Work);
        }
        // Lanes that stay ready are looked at with the next turn, which is no more than a cost.
        Ok(Found::Shared) | Err(_) => {
            tokio::time::sleep(shared.turning.idling.next()).await;
            let _ = shared.wakes.send(Wake::Work);
        }
    }
}

async fn make_idle(shared: &Shared, short: Short) -> Result<Found, StoreError> {
    let Short { lanes, mut session, .. } = short;
    let told = shared.told_time();
    session.begin();
    let (_, own) = flight!(
        session.run("BEGIN; SET LOCAL synchronous_commit TO off"),
        session.query(OWN_LANES, [&lanes])
    )?;
    let own: Vec<i64> = own.iter().map(|row| row.get(0)).collect();
    let (idle, _) = flight!(session.query(IDLE_LANES, [&own, &told]), session.run("COMMIT"))?;
    session.end();
    Ok(match (idle.len() == lanes.len(), idle.len() == own.len()) {
        (true, _) => Found::Idle,
        (false, true) => Found::Shared,
        (false, false) => Found::InLine,
    })
}

/// Twice as long each time that a look was in vain, from a millisecond to a tenth of a second: a sender may keep a lane for long.
#[derive(Default)]
pub(super) struct Backoff(AtomicU32);

impl Backoff {
    fn next(&self) -> Duration {
        let times = self.0.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(1 << times.min(6)).min(Duration::from_millis(100))
    }

    /// A look found something, or nothing is left to look for.
    pub(super) fn rest(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
