//! What is left to do of lanes when a turn has replied: lanes that came up short become idle, so that no turn
//! looks at them, and marks are moved.
//!
//! It is done by a transaction that has their rows alone, so that no sender is in the middle of adding
//! something; and after the turn has replied, on its connection, so that no task waits for it.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use flowgate_core::backoff;

use super::{
    connect::{Lease, Shared},
    marks,
    session::flight,
};
use crate::store::{StoreError, Wake};

const OWN_LANES: &str =
    "SELECT id FROM lanes WHERE id = ANY($1) AND state = 1 ORDER BY id FOR UPDATE SKIP LOCKED";
const IDLE_LANES: &str = "UPDATE lanes SET state = 0 FROM unnest($1::bigint[], $3::bigint[]) AS told (lane, low) \
    WHERE id = told.lane AND state = 1 AND NOT EXISTS (SELECT FROM tasks WHERE lane = told.lane AND place >= told.low \
    AND (good_until IS NULL OR good_until > now_ns($2))) RETURNING id";
/// Those that others have, of those that are ready; or that have something in line by now.
const STILL_READY: &str = "SELECT id FROM lanes WHERE id = ANY($1) AND state = 1";

pub(super) const STATEMENTS: [&str; 3] = [OWN_LANES, IDLE_LANES, STILL_READY];

/// What a turn leaves behind, and its connection.
pub(super) struct Rest {
    /// Lanes that had less than they might have started.
    pub(super) short: Vec<i64>,
    /// Lanes that senders had when they were tried before.
    pub(super) promised: Vec<i64>,
    /// Lanes whose marks are due.
    pub(super) passed: Vec<i64>,
    pub(super) session: Lease,
    /// Whether the worker was told to look again anyway.
    pub(super) asks_again: bool,
}

/// What became of them.
enum Found {
    Idle,
    /// Some have something in line by now.
    InLine,
    /// A sender has some of them, for who knows how long; and of one of them this is news.
    Shared {
        is_news: bool,
    },
}

/// Does what is left. If some lanes could not be made idle, workers are woken: nobody else would tell them.
pub(super) async fn settle(shared: Arc<Shared>, rest: Rest) {
    let Rest { short, promised, passed, mut session, asks_again } = rest;
    let lanes = [short, promised].concat();
    let found = match lanes.is_empty() {
        true => None,
        false => Some(make_idle(&shared, &mut session, &lanes).await),
    };
    // A mark that stays where it is costs time, and no more.
    if !passed.is_empty() && found.as_ref().is_none_or(Result::is_ok) {
        let _ = marks::move_up(&shared, &mut session, &passed).await;
    }
    drop(session);
    let idling = &shared.turning.idling;
    let wakes = match found {
        None => false,
        Some(Ok(Found::Idle)) if shared.turning.promised.is_empty() => {
            idling.rest();
            false
        }
        Some(Ok(_)) if asks_again => false,
        Some(Ok(Found::InLine)) => {
            idling.rest();
            true
        }
        // Lanes that stay ready are looked at with the next turn, which is no more than a cost.
        Some(found) => idling.wait(matches!(found, Ok(Found::Shared { is_news: true }) | Err(_))).await,
    };
    if wakes {
        let _ = shared.wakes.send(Wake::Work);
    }
}

async fn make_idle(shared: &Shared, session: &mut Lease, lanes: &[i64]) -> Result<Found, StoreError> {
    let told = shared.told_time();
    let (own, lows) = marks::own(shared, session, OWN_LANES, lanes).await?;
    let (_, ready, _) = flight!(
        session.query(IDLE_LANES, [&own, &told, &lows]),
        session.query(STILL_READY, [&lanes]),
        session.run("COMMIT"),
    )?;
    session.end();
    let own: HashSet<i64> = own.into_iter().collect();
    let ready: HashSet<i64> = ready.iter().map(|row| row.get("id")).collect();
    let others: HashSet<i64> = ready.difference(&own).copied().collect();
    let is_news = shared.turning.promised.looked(lanes, &others);
    Ok(match (ready.is_empty(), others.len() == ready.len()) {
        (true, _) => Found::Idle,
        (false, true) => Found::Shared { is_news },
        (false, false) => Found::InLine,
    })
}

/// Twice as long each time that a look was in vain, from a millisecond to a tenth of a second: a sender may keep a lane for long.
#[derive(Default)]
pub(super) struct Backoff {
    times: AtomicU32,
    is_waiting: AtomicBool,
}

impl Backoff {
    /// Waits, and says whether to wake workers then. One wait is enough for all lanes that are tried again; one of which nobody
    /// knew does not wait for as long as those do.
    async fn wait(&self, is_news: bool) -> bool {
        if !is_news && self.is_waiting.swap(true, Ordering::Relaxed) {
            return false;
        }
        let times = self.times.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        tokio::time::sleep(backoff(Duration::from_millis(1), 2.0, Duration::from_millis(100), times)).await;
        if !is_news {
            self.is_waiting.store(false, Ordering::Relaxed);
        }
        true
    }

    /// Whether workers will be woken to try lanes again.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// A look found something, or nothing is left to look for.
    pub(super) fn rest(&self) {
        self.times.store(0, Ordering::Relaxed);
    }
}
