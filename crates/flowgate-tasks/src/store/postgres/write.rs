//! What a turn changed: the last flight of its transaction.
//!
//! Owns the counts, lane states and ends as they are written, the wake-ups for them, and the commit. It
//! decides nothing.

use std::{collections::HashSet, time::Duration};

use flowgate_core::Tick;

use super::{
    ahead,
    connect::Lease,
    rows,
    send::{DELAYED, READY_LANES},
    session::flight,
    settle::{self, Ends},
};
use crate::{
    ledger::Ledger,
    plan::{LaneState, Scene},
    store::{Claimed, StoreError, WorkerId},
};

const WRITE_KEYS: &str = "UPDATE keys SET in_use = told.in_use, rates = told.rates \
    FROM unnest($1::bigint[], $2::int[], $3::text[]) AS told (id, in_use, rates) WHERE keys.id = told.id";
const WRITE_LANES: &str = "WITH told AS (SELECT lanes.id, told.state, told.wake_at FROM lanes \
    JOIN unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS told (id, state, wake_at) ON lanes.id = told.id \
    ORDER BY lanes.id FOR NO KEY UPDATE OF lanes) \
    UPDATE lanes SET state = told.state, wake_at = told.wake_at FROM told WHERE lanes.id = told.id";
const WRITE_CLUSTER: &str = "UPDATE cluster SET in_use = greatest(0, in_use + $1) WHERE cap IS NOT NULL";
const WRITE_QUEUES: &str = "WITH told AS (SELECT queues.id, told.change FROM queues \
    JOIN unnest($1::bigint[], $2::int[]) AS told (id, change) ON queues.id = told.id ORDER BY queues.id FOR NO KEY \
    UPDATE OF queues) \
    UPDATE queues SET in_use = greatest(0, in_use + told.change) FROM told WHERE queues.id = told.id AND queues.max IS NOT NULL";
const ENDED: &str = "SELECT pg_notify('flowgate', 'e' || id) FROM unnest($1::bigint[]) AS ended (id)";
const WAKE: &str = "SELECT pg_notify('flowgate', 'w')";
/// For those who do not hear it from this process, which is told who it is.
const WAKE_OTHERS: &str = "SELECT pg_notify('flowgate', 'w' || $1::text)";

pub(super) const STATEMENTS: &[&str] =
    &[WRITE_KEYS, WRITE_LANES, WRITE_CLUSTER, WRITE_QUEUES, ENDED, WAKE, WAKE_OTHERS];

/// Who is told that there may be something to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call<'a> {
    Nobody,
    All,
    /// All but the process of this mark, which tells its own.
    Others(&'a str),
}

impl Call<'_> {
    pub(super) async fn out(self, session: &Lease) -> Result<(), StoreError> {
        match self {
            Call::Nobody => Ok(()),
            Call::All => session.query(WAKE, []).await.map(drop),
            Call::Others(mark) => session.query(WAKE_OTHERS, [&mark]).await.map(drop),
        }
    }
}

/// Writes what changed, claims ahead, and commits: the third flight.
pub(super) async fn write(
    session: &Lease,
    changes: Changes,
    scene: &Scene,
    ends: &Ends,
    call: Call<'_>,
    (worker, ahead, refused): (WorkerId, Option<ahead::Room>, Vec<i64>),
) -> Result<Vec<Claimed>, StoreError> {
    let Ends { again: returned, dead, results, awaited } = ends;
    let cluster = scene.cluster.change() as i32;
    let lanes = returned.lanes_in_order();
    let (goes_back, now) = (!lanes.is_empty(), rows::stored(scene.now));
    let (_, _, _, _, _, _, _, _, _, _, _, ahead, _) = flight!(
        session.query_if(
            !dead.ids.is_empty(),
            settle::ADD_DEAD,
            [
                &dead.ids,
                &dead.lanes,
                &dead.attempts,
                &dead.weights,
                &dead.reasons,
                &dead.errors,
                &now,
                &dead.records,
            ],
        ),
        session.query_if(
            !results.ids.is_empty(),
            settle::ADD_RESULTS,
            [&results.ids, &results.until, &results.results],
        ),
        session.query_if(
            !changes.keys.is_empty(),
            WRITE_KEYS,
            [&changes.keys, &changes.key_counts, &changes.key_rates],
        ),
        session.query_if(
            !changes.lanes.is_empty(),
            WRITE_LANES,
            [&changes.lanes, &changes.lane_states, &changes.lane_wakes],
        ),
        session.query_if(goes_back, READY_LANES, [&lanes]),
        session.query_if(cluster != 0 && scene.cluster.cap.is_some(), WRITE_CLUSTER, [&cluster]),
        session.query_if(!changes.queues.is_empty(), WRITE_QUEUES, [&changes.queues, &changes.queue_changes]),
        session.query_if(!awaited.is_empty(), ENDED, [awaited]),
        session.query_if(!refused.is_empty(), ahead::REFUSE, [&refused, &now]),
        session.query_if(!refused.is_empty() || returned.is_delayed(), DELAYED, []),
        call.out(session),
        ahead::take(session, worker, ahead, now),
        session.run("COMMIT"),
    )?;
    Ok(ahead)
}

/// What a turn changes, as columns.
#[derive(Default)]
pub(super) struct Changes {
    keys: Vec<i64>,
    key_counts: Vec<i32>,
    key_rates: Vec<String>,
    lanes: Vec<i64>,
    lane_states: Vec<i16>,
    lane_wakes: Vec<Option<i64>>,
    queues: Vec<i64>,
    queue_changes: Vec<i32>,
    /// A lane that was held may run, or a cap that was reached is not any more.
    pub(super) makes_room: bool,
    /// The latter.
    pub(super) leaves_cap: bool,
    /// When the first of the lanes wakes that rest from now on.
    rests_until: Option<Tick>,
}

impl Changes {
    /// Whether everything stays as it was.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.lanes.is_empty() && self.queues.is_empty() && !self.makes_room
    }

    /// For how long the first of these lanes rests.
    pub(super) fn rest(&self, now: Tick) -> Option<Duration> {
        self.rests_until.map(|until| until.since(now))
    }

    /// Beside what was said of lanes and counted of keys. `stuck` are lanes whose head is too heavy for the room its
    /// key has, `left` those that were idle and are not any more.
    pub(super) fn of(
        scene: &Scene,
        (were, counted): (&[Option<LaneState>], &[(u32, Ledger)]),
        stuck: &HashSet<i64>,
        left: &[i64],
    ) -> Self {
        let mut changes = Changes::default();
        for (key, (in_use, ledger)) in scene.keys.iter().zip(counted) {
            // A row that is written leaves one behind that everybody has to step over until the server may remove it.
            if key.in_use == *in_use && key.ledger == *ledger {
                continue;
            }
            let mut ledger = key.ledger.clone();
            ledger.tidy(scene.now);
            changes.keys.push(key.id);
            changes.key_counts.push(key.in_use as i32);
            changes.key_rates.push(ledger.to_text());
        }
        for (lane, was) in scene.lanes.iter().zip(were) {
            let is_idle = was.is_none() && !left.contains(&lane.id);
            let state = if stuck.contains(&lane.id) { LaneState::Held } else { scene.state_of(lane) };
            if !is_idle && Some(state) != *was {
                changes.lane(lane.id, state);
            }
        }
        // Of these the worker was shown nothing: they are for whoever comes.
        let is_seen = |id: &i64| scene.lanes.iter().any(|lane| lane.id == *id);
        for id in left.iter().filter(|id| !is_seen(id)) {
            changes.lane(*id, LaneState::Ready);
        }
        for queue in &scene.queues {
            let change = queue.counter.change();
            if change != 0 && queue.counter.cap.is_some() {
                changes.queues.push(queue.id);
                changes.queue_changes.push(change as i32);
            }
        }
        let counters = scene.queues.iter().map(|queue| &queue.counter).chain([&scene.cluster]);
        changes.leaves_cap = counters.into_iter().any(|counter| counter.leaves_full());
        changes.makes_room |= changes.leaves_cap;
        changes
    }
    fn lane(&mut self, id: i64, state: LaneState) {
        self.makes_room |= state == LaneState::Ready;
        if let LaneState::Until(until) = state {
            self.rests_until = Some(self.rests_until.map_or(until, |earlier| earlier.min(until)));
        }
        let (number, wake_at) = rows::lane_state(state);
        self.lanes.push(id);
        self.lane_states.push(number);
        self.lane_wakes.push(wake_at);
    }
}
