//! Rows of the database as the plan sees them, and moments as it counts them.

use flowgate_core::Tick;
use tokio_postgres::Row;

use super::connect::Lease;
use crate::{
    plan::{Candidate, Counter, Key, LaneState, Queue},
    store::{Claimed, KeyLook, Place, Unread},
    task::TaskId,
    terms::KeyTerms,
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
pub(super) fn key(row: &Row, id: i64) -> Key {
    let terms = (row.get("pinned"), row.get("sent"), row.get("latest"));
    Key::read(id, count(row, "in_use"), row.get("paused"), terms, row.get("rates"))
}

/// What is to be seen of a key. Columns: in_use, waiting, delayed, paused, pinned, sent, latest.
pub(super) fn key_look(row: &Row, key: String) -> KeyLook {
    let is_latest = row.get("latest");
    let KeyTerms { pinned, sent, unread } = KeyTerms::read(row.get("pinned"), row.get("sent"), is_latest);
    KeyLook {
        key,
        in_use: count(row, "in_use"),
        waiting: row.get::<_, i64>("waiting").unsigned_abs(),
        delayed: row.get::<_, i64>("delayed").unsigned_abs(),
        is_paused: row.get("paused"),
        pinned,
        is_latest,
        sent,
        unread,
    }
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
pub(super) fn candidate(row: &Row, key: Option<usize>) -> Candidate {
    Candidate::read(row.get("lane"), row.get("queue"), key, row.get("priority"), row.get("limits"))
}

/// Whose limits these are that cannot be read. Asked when all is done, and seldom: whoever is not told now is told the next time.
pub(super) async fn named(session: &Lease, unread: Vec<(i64, String)>) -> Vec<Unread> {
    if unread.is_empty() {
        return Vec::new();
    }
    let (ids, texts): (Vec<i64>, Vec<String>) = unread.into_iter().unzip();
    let sql =
        "SELECT name, text FROM unnest($1::bigint[], $2::text[]) AS unread (id, text) JOIN keys USING (id)";
    let rows = session.client().query(sql, &[&ids, &texts]).await.unwrap_or_default();
    rows.iter().map(|row| Unread { key: row.get(0), text: row.get(1) }).collect()
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
