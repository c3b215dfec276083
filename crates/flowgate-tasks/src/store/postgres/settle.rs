//! What is written of tasks that ended.

use flowgate_core::Tick;

use super::{columns::nanos, connect::Lease, rows::stored, send::SHARE_LANES, session::flight};
use crate::{
    record::Rest,
    store::{End, Settle, StoreError},
};

/// Tasks that go back: to the front of their line, which is not before its mark, or to wait. Their lanes are shared.
pub(super) const ADD_AGAIN: &str = "INSERT INTO tasks (id, lane, place, attempt, weight, due_at, good_until, record) \
    SELECT id, lane, CASE WHEN due_at IS NULL THEN greatest(id, low) END, attempt, weight, due_at, good_until, record \
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::bytea[]) \
    AS told (id, lane, attempt, weight, due_at, good_until, record) LEFT JOIN marks USING (lane)";
/// Of those that have just gone back, the ones that were cancelled while they were held, and whose worker did not hear
/// of it in time, do not run again.
pub(super) const BURY_CANCELLED: &str = "WITH found AS MATERIALIZED (SELECT task FROM cancels WHERE task = ANY($1)), \
    gone AS (DELETE FROM tasks WHERE id = ANY(ARRAY(SELECT task FROM found)) RETURNING id, lane, attempt, weight, record), \
    told AS (INSERT INTO dead (id, queue, key, priority, limits, attempt, weight, reason, error, at, record) \
    SELECT gone.id, queues.name, keys.name, lanes.priority, lanes.limits, attempt, weight, 'cancelled', '', now_ns($2), record \
    FROM gone JOIN lanes ON lanes.id = gone.lane JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key) \
    SELECT pg_notify('flowgate', 'e' || id) FROM gone";
/// Tasks that will not run again.
pub(super) const ADD_DEAD: &str = "INSERT INTO dead (id, queue, key, priority, limits, attempt, weight, reason, error, \
    at, record) \
    SELECT told.id, queues.name, keys.name, lanes.priority, lanes.limits, attempt, weight, reason, error, $7, record \
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::text[], $6::text[], $8::bytea[]) \
    AS told (id, lane, attempt, weight, reason, error, record) \
    JOIN lanes ON lanes.id = told.lane JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key";
pub(super) const ADD_RESULTS: &str = "INSERT INTO results (id, until, result) \
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])";

/// The ends of a turn, as columns.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) again: Again,
    pub(super) dead: Dead,
    pub(super) results: Results,
    /// Tasks whose senders may be waiting for them.
    pub(super) awaited: Vec<i64>,
}

#[derive(Default)]
pub(super) struct Again {
    now: Option<i64>,
    pub(super) ids: Vec<i64>,
    pub(super) lanes: Vec<i64>,
    pub(super) attempts: Vec<i32>,
    pub(super) weights: Vec<i32>,
    pub(super) due: Vec<Option<i64>>,
    pub(super) good: Vec<Option<i64>>,
    pub(super) records: Vec<Vec<u8>>,
}

#[derive(Default)]
pub(super) struct Dead {
    pub(super) ids: Vec<i64>,
    pub(super) lanes: Vec<i64>,
    pub(super) attempts: Vec<i32>,
    pub(super) weights: Vec<i32>,
    pub(super) reasons: Vec<&'static str>,
    pub(super) errors: Vec<String>,
    pub(super) records: Vec<Vec<u8>>,
}

#[derive(Default)]
pub(super) struct Results {
    pub(super) ids: Vec<i64>,
    pub(super) until: Vec<i64>,
    pub(super) results: Vec<Vec<u8>>,
}

impl Again {
    /// The lanes that something goes back to, each once, as they are locked.
    pub(super) fn lanes_in_order(&self) -> Vec<i64> {
        let mut lanes = self.lanes.clone();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// Puts them back. Before anything is taken: what goes back to the front of its line is the first to be taken again.
    pub(super) async fn put_back(&self, session: &Lease) -> Result<(), StoreError> {
        let lanes = self.lanes_in_order();
        let Again { now, ids, lanes: to, attempts, weights, due, good, records } = self;
        let goes_back = !lanes.is_empty();
        let (_, _, _) = flight!(
            session.query_if(goes_back, SHARE_LANES, [&lanes]),
            session.query_if(goes_back, ADD_AGAIN, [ids, to, attempts, weights, due, good, records]),
            session.query_if(goes_back, BURY_CANCELLED, [ids, now]),
        )?;
        Ok(())
    }

    /// Whether something of it waits for a moment.
    pub(super) fn is_delayed(&self) -> bool {
        self.due.iter().any(Option::is_some)
    }
}

impl Ends {
    /// Whether there is nothing to write of them.
    pub(super) fn is_empty(&self) -> bool {
        self.again.ids.is_empty()
            && self.dead.ids.is_empty()
            && self.results.ids.is_empty()
            && self.awaited.is_empty()
    }

    /// About how many bytes the store is told of them.
    pub(super) fn bytes(&self) -> usize {
        let bodies = [&self.again.records, &self.dead.records, &self.results.results];
        let bodies = bodies.into_iter().flatten().map(Vec::len);
        bodies.chain(self.dead.errors.iter().map(String::len)).sum()
    }

    pub(super) fn of<'a>(settles: impl Iterator<Item = &'a Settle>, now: Tick) -> Self {
        let mut ends =
            Ends { again: Again { now: Some(stored(now)), ..Again::default() }, ..Ends::default() };
        settles.for_each(|settle| ends.add(settle, now));
        ends
    }

    fn add(&mut self, Settle { task, end }: &Settle, now: Tick) {
        let record = Rest::of(&task.record);
        let is_last = task.attempt >= record.max_attempts;
        let again = |ends: &mut Self, attempt: u32, due: Option<i64>| {
            ends.again.ids.push(task.id.0);
            ends.again.lanes.push(task.place.lane);
            ends.again.attempts.push(attempt as i32);
            ends.again.weights.push(task.weight as i32);
            ends.again.due.push(due);
            ends.again.good.push(task.good_until.map(stored));
        };
        let dead = |ends: &mut Self, reason: &'static str, error: String| {
            ends.dead.ids.push(task.id.0);
            ends.dead.lanes.push(task.place.lane);
            ends.dead.attempts.push(task.attempt as i32);
            ends.dead.weights.push(task.weight as i32);
            ends.dead.reasons.push(reason);
            // No text of PostgreSQL has one, and a turn that is refused settles nothing, however often it is tried.
            ends.dead.errors.push(error.replace('\0', "\u{fffd}"));
            ends.awaited.extend(record.keep.map(|_| task.id.0));
        };
        match end {
            End::Done { result } => {
                if let Some(keep) = record.keep {
                    self.results.ids.push(task.id.0);
                    self.results.until.push(stored(now) + nanos(keep));
                    self.results.results.push(result.clone());
                    self.awaited.push(task.id.0);
                }
                return;
            }
            End::Returned => again(self, task.attempt - 1, None),
            End::Lost if !is_last => again(self, task.attempt, None),
            End::Failed { retry_after, .. } if !is_last => {
                let due = stored(now) + nanos(*retry_after);
                again(self, task.attempt, Some(due).filter(|_| !retry_after.is_zero()));
            }
            End::Lost => dead(self, "failed", "its worker was lost during the last attempt".to_owned()),
            End::Failed { error, .. } | End::Dead { error } => dead(self, "failed", error.clone()),
            End::Cancelled => dead(self, "cancelled", String::new()),
        }
        let is_again = self.again.ids.len() > self.again.records.len();
        let records = if is_again { &mut self.again.records } else { &mut self.dead.records };
        records.push(task.record.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        record::Record,
        store::{Claimed, Place},
        task::{Retry, TaskId},
    };

    // Seen to fail: with errors left out, a turn that carried one of 5,000 bytes was taken for one of few.
    #[test]
    fn s1_what_a_turn_carries_is_counted_whatever_it_is_of() {
        let keep = Some(Duration::from_secs(60));
        let record =
            Record { kind: "one".into(), body: vec![0; 300], retry: Retry::default(), timeout: None, keep };
        let record = record.to_bytes();
        let settle = |end| {
            let place = Place { lane: 1, queue: 1, key: None };
            let record = record.clone().into();
            let task =
                Claimed { id: TaskId(1), lease: 1, attempt: 1, weight: 1, good_until: None, record, place };
            Settle { task, end }
        };
        let bytes = |end| Ends::of([settle(end)].iter(), Tick::ZERO).bytes();
        assert_eq!(bytes(End::Done { result: vec![0; 4000] }), 4000);
        assert_eq!(bytes(End::Dead { error: "x".repeat(5000) }), record.len() + 5000);
        assert_eq!(bytes(End::Returned), record.len());
    }
}
