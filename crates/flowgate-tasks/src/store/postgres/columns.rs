//! Tasks as columns of one insert, and the statements that carry them.

use tokio_postgres::{Row, Transaction};

use super::{
    connect::{Lease, Shared},
    gather::Filling,
    notes::put_on_sheets,
    packs::Packs,
    send::{Batch, Named, SHARE_LANES},
    session::{Params, begun, failed, flight},
};
use crate::{
    store::{Sent, StoreError},
    task::{NewTask, TaskId, When},
};

/// Lanes that get a task of more than one slot.
pub(super) const HEAVY_LANES: &str = "UPDATE lanes SET heavy = true WHERE id = ANY($1) AND NOT heavy";

/// Where a lane is gone, all are null, which is refused: then nothing is stored. $13: it is somebody else's
/// transaction, who knows that it began. They are looked for once, not for each task. The time is no table to join, so
/// that what comes in its order is not sorted. A number from before its lane was shared may be before the lane's mark.
pub(super) const ADD_TASKS: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT flowgate.now_ns($11) AS now), told AS MATERIALIZED (\
    SELECT coalesce(asked.id, nextval('flowgate.task_ids')) AS id, \
    CASE WHEN (SELECT count(*) FROM flowgate.lanes WHERE id = ANY($12::bigint[])) = cardinality($12::bigint[]) \
    AND ($13 OR ",
    begun!(),
    ") THEN asked.lane END AS lane, \
    asked.id AS named, weight, record, noted_at, nr, \
    CASE WHEN due_from_now THEN (SELECT now FROM clock) + due ELSE due END AS due, \
    CASE WHEN good_from_now THEN (SELECT now FROM clock) + good ELSE good END AS good \
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::bool[], $6::bigint[], $7::bool[], \
    $8::bytea[], $10::bigint[]) \
    WITH ORDINALITY AS asked (id, lane, weight, due, due_from_now, good, good_from_now, record, noted_at, nr) ORDER BY \
    nr OFFSET 0), ",
    put_on_sheets!(
        "",
        "$9",
        "$14",
        "",
        "(SELECT id AS task, noted_at AS at, nr::int AS seat FROM told WHERE noted_at IS NOT NULL) AS noted"
    ),
    ", added AS (INSERT INTO flowgate.tasks (id, lane, place, attempt, weight, due_at, good_until, record) \
    SELECT id, lane, CASE WHEN due IS NULL OR due <= (SELECT now FROM clock) THEN \
    greatest(id, CASE WHEN named IS NOT NULL THEN (SELECT low FROM flowgate.marks WHERE marks.lane = told.lane) END) \
    END, 0, weight, \
    CASE WHEN due > (SELECT now FROM clock) THEN due END, good, record FROM told RETURNING id) SELECT array_agg(id) FROM added",
);

/// Whoever had the keys may have said of their lanes that they are held. A statement sees what was there when it began, so
/// the keys are waited for by one of its own, before the one that looks at the lanes.
pub(super) const LOCK_SENT: &str = "SELECT FROM keys JOIN unnest($1::text[], $2::text[]) AS asked (name, limits) ON \
    keys.name = asked.name \
    WHERE keys.sent <> asked.limits ORDER BY keys.id FOR NO KEY UPDATE OF keys";

/// The newest limits sent for each key; where these govern, everything that waits is looked at anew.
pub(super) const SENT_LIMITS: &str = concat!(
    "WITH newest AS (SELECT keys.id, asked.limits FROM keys \
    JOIN unnest($1::text[], $2::text[]) AS asked (name, limits) ON keys.name = asked.name \
    WHERE keys.sent <> asked.limits AND ",
    begun!(),
    " ORDER BY keys.id FOR NO KEY UPDATE OF keys), \
    changed AS (UPDATE keys SET sent = newest.limits FROM newest WHERE keys.id = newest.id RETURNING keys.id, latest) \
    UPDATE lanes SET state = 1, wake_at = NULL FROM changed \
    WHERE lanes.key = changed.id AND changed.latest AND lanes.state IN (2, 3)"
);

pub(super) const STATEMENTS: [&str; 4] = [HEAVY_LANES, ADD_TASKS, LOCK_SENT, SENT_LIMITS];

/// The newest limits of each key, in the order of its tasks.
pub(super) fn sent_limits(tasks: &[NewTask]) -> (Vec<&str>, Vec<String>) {
    let mut newest = std::collections::BTreeMap::new();
    for task in tasks {
        if let (Some(key), Some(limits)) = (&task.key, &task.limits) {
            newest.insert(key.as_str(), limits);
        }
    }
    newest.into_iter().map(|(key, limits)| (key, crate::terms::to_text(Some(limits)))).unzip()
}

/// Tasks as columns of an insert.
pub(super) struct Columns {
    pub(super) all_lanes: Vec<i64>,
    pub(super) heavy_lanes: Vec<i64>,
    ids: Vec<Option<i64>>,
    pub(super) lanes: Vec<i64>,
    weights: Vec<i32>,
    due: Vec<Option<i64>>,
    due_from_now: Vec<bool>,
    good: Vec<Option<i64>>,
    good_from_now: Vec<bool>,
    pub(super) records: Vec<Vec<u8>>,
    pub(super) noted_at: Vec<Option<i64>>,
    pub(super) packs: Packs,
}

impl Columns {
    pub(super) fn of(tasks: &[NewTask], lanes: &[i64], named: &[Option<Named>]) -> Self {
        let new =
            || tasks.iter().zip(lanes).zip(named).filter(|(_, named)| named.is_none_or(|named| named.is_new));
        let mut all_lanes: Vec<i64> = new().map(|((_, lane), _)| *lane).collect();
        let lanes = all_lanes.clone();
        all_lanes.sort_unstable();
        all_lanes.dedup();
        let heavy = new().filter(|((task, _), _)| task.weight > 1).map(|((_, lane), _)| *lane);
        let note = |task: &NewTask| task.note().map(|(at, body)| (moment(When::At(at)), body)).unzip();
        let (noted_at, notes): (Vec<Option<i64>>, Vec<Option<Vec<u8>>>) =
            new().map(|((task, _), _)| note(task)).unzip();
        // A task without a note has a seat like the others.
        let packs = match noted_at.iter().any(Option::is_some) {
            true => Packs::of(notes.iter().map(|note| note.as_deref().unwrap_or_default())),
            false => Packs::default(),
        };
        Columns {
            all_lanes,
            heavy_lanes: heavy.collect(),
            lanes,
            ids: new().map(|(_, named)| named.map(|named| named.task)).collect(),
            weights: new().map(|((task, _), _)| task.weight as i32).collect(),
            due: new().map(|((task, _), _)| task.start.map(moment)).collect(),
            due_from_now: new().map(|((task, _), _)| is_from_now(task.start)).collect(),
            good: new().map(|((task, _), _)| task.good_until.map(moment)).collect(),
            good_from_now: new().map(|((task, _), _)| is_from_now(task.good_until)).collect(),
            records: new().map(|((task, _), _)| task.record.to_bytes()).collect(),
            noted_at,
            packs,
        }
    }
}

impl Columns {
    /// The statements that store them, up to those that have somebody look at them.
    pub(super) async fn put(
        &self,
        shared: &Shared,
        session: &Lease,
        batch: &Batch<'_>,
    ) -> Result<Vec<i64>, StoreError> {
        let told = shared.told_time();
        let limits = sent_limits(batch.tasks);
        let begin = async {
            match batch.begin {
                Some(begin) => session.run(begin).await,
                None => Ok(()),
            }
        };
        let limited = async {
            if limits.0.is_empty() {
                Ok(Vec::new())
            } else {
                let params: Params<'_, 2> = [&limits.0, &limits.1];
                let (_, changed) =
                    flight!(session.query(LOCK_SENT, params), session.query(SENT_LIMITS, params))?;
                Ok(changed)
            }
        };
        let (_, _, _, _, _, added) = flight!(
            begin,
            session.carry(batch.tasks.iter().map(NewTask::size).sum()),
            session.query(SHARE_LANES, [&self.all_lanes]),
            limited,
            session.query_if(!self.heavy_lanes.is_empty(), HEAVY_LANES, [&self.heavy_lanes]),
            session.query(ADD_TASKS, self.params(&told, &false)),
        )?;
        let added = ids(&added);
        if added.len() == self.lanes.len() {
            return Ok(added);
        }
        let why = "fewer numbers came back than went in".to_owned();
        Err(StoreError::Database { doing: "storing tasks", why })
    }

    /// As [`ADD_TASKS`] takes them.
    fn params<'a>(&'a self, told: &'a Option<i64>, is_theirs: &'a bool) -> Params<'a, 14> {
        [
            &self.ids,
            &self.lanes,
            &self.weights,
            &self.due,
            &self.due_from_now,
            &self.good,
            &self.good_from_now,
            &self.records,
            &self.packs.seats,
            &self.noted_at,
            told,
            &self.all_lanes,
            is_theirs,
            &self.packs.bodies,
        ]
    }

    /// What is put into which lanes.
    pub(super) fn filling(&self, tasks: &[NewTask]) -> Filling {
        let mut filling = Filling {
            has_keys: tasks.iter().any(|task| task.key.is_some()),
            is_prompt: tasks.iter().all(|task| task.start.is_none() && task.good_until.is_none()),
            ..Filling::default()
        };
        for lane in &self.lanes {
            *filling.lanes.entry(*lane).or_default() += 1;
        }
        filling
    }
}

impl Columns {
    pub(super) async fn add_in(
        &self,
        transaction: &Transaction<'_>,
        told: Option<i64>,
    ) -> Result<Vec<Sent>, StoreError> {
        let failed = failed("storing tasks in a transaction");
        let columns = self.params(&told, &true);
        let added = transaction.query(ADD_TASKS, &columns);
        let tell = "SELECT pg_notify('flowgate', 'w'), pg_notify('flowgate', 'd')";
        let (added, _) = flight!(added, transaction.query(tell, &[])).map_err(failed)?;
        Ok(ids(&added).into_iter().map(|id| Sent { id: TaskId(id), is_duplicate: false }).collect())
    }
}

/// The numbers of tasks that were stored, in the order in which they were told: one row for all of them.
fn ids(added: &[Row]) -> Vec<i64> {
    added.first().and_then(|row| row.get(0)).unwrap_or_default()
}

fn moment(when: When) -> i64 {
    match when {
        When::After(span) => nanos(span),
        When::At(at) => i64::try_from(at.as_nanos()).unwrap_or(i64::MAX),
    }
}

fn is_from_now(when: Option<When>) -> bool {
    matches!(when, Some(When::After(_)))
}

/// Up to a hundred years, so that adding it to a moment stays within what can be counted.
pub(super) fn nanos(span: std::time::Duration) -> i64 {
    const MOST: u128 = 100 * 366 * 24 * 60 * 60 * 1_000_000_000;
    span.as_nanos().min(MOST) as i64
}
