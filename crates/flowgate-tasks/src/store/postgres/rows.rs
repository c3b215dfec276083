//! Rows of the database as the plan sees them, and moments as it counts them.

use flowgate_core::{Limits, Tick};
use tokio_postgres::Row;

use crate::{
    ledger::Ledger,
    plan::{Candidate, Counter, Key, LaneState, Queue},
    store::{Claimed, Place, StoreError},
    task::TaskId,
    terms,
};

pub(super) fn tick(nanos: i64) -> Tick {
    Tick::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

pub(super) fn stored(at: Tick) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

fn count(row: &Row, column: &str) -> u32 {
    u32::try_from(row.get::<_, i32>(column)).unwrap_or_default()
}

fn cap(row: &Row, column: &str) -> Option<u32> {
    row.get::<_, Option<i32>>(column).map(|cap| u32::try_from(cap).unwrap_or_default())
}

/// Columns: id, in_use, paused, pinned, sent, latest, rates.
pub(super) fn key(row: &Row, id: i64) -> Result<Key, StoreError> {
    let sent = terms::from_text(row.get("sent"))?;
    Ok(Key {
        id,
        in_use: count(row, "in_use"),
        is_paused: row.get("paused"),
        pinned: row.get::<_, Option<&str>>("pinned").map(terms::from_text).transpose()?.flatten(),
        latest: sent.filter(|_| row.get("latest")),
        ledger: Ledger::read(row.get("rates")),
    })
}

/// Columns: id, priority, max, in_use, paused.
pub(super) fn queue(row: &Row, quota: u32, is_locked: bool) -> Queue {
    Queue {
        id: row.get("id"),
        priority: row.get("priority"),
        is_paused: row.get("paused"),
        counter: Counter {
            cap: cap(row, "max"),
            in_use: count(row, "in_use"),
            is_locked,
            ..Counter::default()
        },
        quota,
    }
}

/// Columns: cap, in_use.
pub(super) fn cluster(row: &Row, is_locked: bool) -> Counter {
    Counter { cap: cap(row, "cap"), in_use: count(row, "in_use"), is_locked, ..Counter::default() }
}

/// Columns: lane, queue, priority, limits.
pub(super) fn candidate(row: &Row, key: Option<usize>) -> Result<Candidate, StoreError> {
    Ok(Candidate {
        id: row.get("lane"),
        queue: row.get("queue"),
        key,
        priority: row.get("priority"),
        own: terms::from_text(row.get("limits"))?,
    })
}

/// Limits of a column that may be null.
pub(super) fn limits(row: &Row, column: &str) -> Result<Option<Limits>, StoreError> {
    Ok(row.get::<_, Option<&str>>(column).map(terms::from_text).transpose()?.flatten())
}

/// The number of a lane's state, and when it wakes by itself.
pub(super) fn lane_state(state: LaneState) -> (i16, Option<i64>) {
    match state {
        LaneState::Ready => (1, None),
        LaneState::Held => (2, None),
        LaneState::Until(at) => (3, Some(stored(at))),
    }
}

/// The tasks of a lease; of where they came from, only the lane is known.
pub(super) fn claimed(row: &Row) -> impl Iterator<Item = Claimed> {
    let lease = row.get("id");
    let ids: Vec<i64> = row.get("ids");
    let lanes: Vec<i64> = row.get("lanes");
    let attempts: Vec<i32> = row.get("attempts");
    let weights: Vec<i32> = row.get("weights");
    let goods: Vec<i64> = row.get("goods");
    let records: Vec<Vec<u8>> = row.get("records");
    let columns = ids.into_iter().zip(lanes).zip(attempts).zip(weights).zip(goods).zip(records);
    columns.map(move |(((((id, lane), attempt), weight), good), record)| Claimed {
        id: TaskId(id),
        lease,
        attempt: attempt as u32,
        weight: weight as u32,
        good_until: Some(tick(good)).filter(|good| *good > Tick::ZERO),
        record: record.into(),
        place: Place { lane, queue: 0, key: None },
    })
}
