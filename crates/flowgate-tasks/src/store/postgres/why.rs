//! What runs, what waits, and what stands between a task and its start. Changes nothing.

use std::time::Duration;

use tokio_postgres::Row;

use super::{
    connect::{Line, Postgres},
    look,
    rows::{self, tick},
    session::failed,
};
use crate::{
    record::kind_of,
    store::{
        Elsewhere, Holder, MOST_COUNTED, Of, Standing, State, StoreError, TaskLook, WorkerId, WorkerLook,
    },
    task::TaskId,
};

const OF: &str = "($1::text IS NULL OR queues.name = $1) AND ($2::text IS NULL OR keys.name = $2)";
const HOLDERS: &str = "SELECT held.id, held.attempt, held.weight, held.record, queues.name AS queue, keys.name AS key, \
    worker, now_ns($4::bigint) - since AS held_for, ahead_until IS NOT NULL AS at_hand \
    FROM leases CROSS JOIN LATERAL unnest(ids, leases.lanes, attempts, weights, records) AS held (id, lane, attempt, \
    weight, record) \
    JOIN lanes ON lanes.id = held.lane JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key \
    WHERE held.id <> ALL(done) AND ($5::bigint IS NULL OR $5 = ANY(ids)) AND ($5::bigint IS NULL OR held.id = $5) AND ";
/// Of each lane no more than are asked for: what waits behind them is neither read nor sorted. Delayed ones where too
/// few stand in line.
const LINE: &str = "SELECT tasks.id, queues.name AS queue, keys.name AS key, lanes.priority, attempt, record, due_at, \
    (SELECT count(*) FROM tasks AS ahead WHERE ahead.lane = tasks.lane AND (ahead.place, ahead.id) < (tasks.place, \
    tasks.id)) AS ahead, now_ns($4::bigint) AS now \
    FROM lanes JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key CROSS JOIN LATERAL (\
    SELECT * FROM ((SELECT * FROM tasks WHERE lane = lanes.id AND place IS NOT NULL ORDER BY place, id LIMIT $3) UNION ALL \
    (SELECT * FROM tasks WHERE lane = lanes.id AND place IS NULL ORDER BY due_at, id LIMIT $3)) AS parts LIMIT $3) AS \
    tasks WHERE $5::bigint IS NULL AND ";
const STANDING: &str = "SELECT now_ns($2::bigint) AS now, tasks.weight, tasks.good_until, lanes.limits, lanes.key, \
    in_use, paused, pinned, sent, latest, rates, \
    (SELECT count(*) FROM lanes AS others JOIN tasks AS ahead ON ahead.lane = others.id \
    WHERE others.key = lanes.key AND (ahead.place, ahead.id) < (coalesce(tasks.place, 9223372036854775807), tasks.id)) \
    AS ahead_in_key, \
    (SELECT count(*) FROM (SELECT FROM lanes AS others JOIN tasks AS ahead ON ahead.lane = others.id \
    WHERE others.queue = lanes.queue AND ahead.place IS NOT NULL AND (others.priority < lanes.priority \
    OR others.priority = lanes.priority AND (ahead.place, ahead.id) < (coalesce(tasks.place, 9223372036854775807), \
    tasks.id)) LIMIT $3) AS counted) AS ahead_in_queue \
    FROM tasks JOIN lanes ON lanes.id = tasks.lane LEFT JOIN keys ON keys.id = lanes.key WHERE tasks.id = $1";
/// What is ready in queues that are served before the task's own.
const ELSEWHERE: &str = "SELECT name, ready FROM (SELECT queues.name, (SELECT count(*) FROM (SELECT FROM lanes JOIN \
    tasks ON tasks.lane = lanes.id \
    WHERE lanes.queue = queues.id AND lanes.state = 1 AND place IS NOT NULL LIMIT $2) AS counted) AS ready FROM queues \
    WHERE NOT paused \
    AND priority < (SELECT queues.priority FROM queues JOIN lanes ON lanes.queue = queues.id JOIN tasks ON tasks.lane \
    = lanes.id WHERE tasks.id = $1)) AS better \
    WHERE ready > 0";
const WORKERS: &str = "SELECT id, name, slots, lease_until, now_ns($1::bigint) AS now, \
    coalesce((SELECT array_agg(queues.name ORDER BY queues.name) FROM queues WHERE queues.id = ANY(workers.queues)), \
    '{}') AS served, \
    (SELECT coalesce(sum(cardinality(ids) - cardinality(done)), 0)::bigint FROM leases WHERE leases.worker = workers.id \
    AND ahead_until IS NULL) AS held, \
    (SELECT count(*) FROM leases WHERE leases.worker = workers.id AND ahead_until IS NOT NULL) AS ahead \
    FROM workers WHERE lease_until > now_ns($1::bigint) ORDER BY id";

impl Postgres {
    async fn of(
        &self,
        head: &'static str,
        order: &'static str,
        of: Of,
        most: u32,
    ) -> Result<Vec<Row>, StoreError> {
        self.job(Line::Rest, move |shared, session| async move {
            let (queue, key, task) = match of {
                Of::All => (None, None, None),
                Of::Queue(name) => (Some(name), None, None),
                Of::Key(name) => (None, Some(name), None),
                Of::Task(id) => (None, None, Some(id.0)),
            };
            let sql = format!("{head}{OF} ORDER BY {order} LIMIT $3");
            let most = i64::from(most);
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&queue, &key, &most, &shared.told_time(), &task];
            session.client().query(&sql, &params).await.map_err(failed("reading"))
        })
        .await
    }

    pub(super) async fn see_holders(&self, of: Of, most: u32) -> Result<Vec<Holder>, StoreError> {
        let holder = |row: &Row| {
            Ok(Holder {
                id: TaskId(row.get("id")),
                kind: kind_of(row.get("record")),
                queue: row.get("queue"),
                key: row.get("key"),
                weight: row.get::<_, i32>("weight").cast_unsigned(),
                attempt: row.get::<_, i32>("attempt").cast_unsigned(),
                worker: WorkerId(row.get("worker")),
                held_for: Duration::from_nanos(row.get::<_, i64>("held_for").max(0).cast_unsigned()),
                is_at_hand: row.get("at_hand"),
            })
        };
        self.of(HOLDERS, "at_hand, since, held.id", of, most).await?.iter().map(holder).collect()
    }

    pub(super) async fn see_line(&self, of: Of, most: u32) -> Result<Vec<TaskLook>, StoreError> {
        if let Of::Task(id) = of {
            let waits = |look: &TaskLook| matches!(look.state, State::Waiting { .. } | State::Delayed { .. });
            let found = self.see_task(id).await?.filter(waits);
            return Ok(found.into_iter().take(most as usize).collect());
        }
        let task = |row: &Row| {
            let state = match row.get::<_, Option<i64>>("due_at") {
                Some(due) => State::Delayed { until: tick(due) },
                None => State::Waiting { ahead: row.get::<_, i64>("ahead").cast_unsigned() },
            };
            look::look(row, TaskId(row.get("id")), state)
        };
        self.of(LINE, "place NULLS LAST, due_at, tasks.id", of, most).await?.iter().map(task).collect()
    }

    pub(super) async fn see_standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        self.job(Line::Rest, move |shared, session| async move {
            let row = session
                .client()
                .query_opt(STANDING, &[&id.0, &shared.told_time(), &i64::from(MOST_COUNTED)])
                .await;
            let Some(row) = row.map_err(failed("reading a task"))? else { return Ok(None) };
            let elsewhere = session.client().query(ELSEWHERE, &[&id.0, &i64::from(MOST_COUNTED)]).await;
            let elsewhere = elsewhere.map_err(failed("reading the queues ahead of a task"))?;
            let now = tick(row.get("now"));
            let weight = row.get::<_, i32>("weight").cast_unsigned();
            let key = row.get::<_, Option<i64>>("key").map(|id| rows::key(&row, id));
            let under = key.map(|key| key.holding(row.get("limits"), weight, now)).unwrap_or_default();
            Ok(Some(Standing {
                now,
                weight,
                good_until: row.get::<_, Option<i64>>("good_until").map(tick),
                under,
                ahead_in_key: row.get::<_, i64>("ahead_in_key").cast_unsigned(),
                ahead_in_queue: row.get::<_, i64>("ahead_in_queue").cast_unsigned(),
                ahead_elsewhere: elsewhere
                    .iter()
                    .map(|row| Elsewhere { queue: row.get(0), ready: row.get::<_, i64>(1).cast_unsigned() })
                    .collect(),
            }))
        })
        .await
    }

    pub(super) async fn see_workers(&self) -> Result<Vec<WorkerLook>, StoreError> {
        let worker = |row: &Row| WorkerLook {
            id: WorkerId(row.get("id")),
            name: row.get("name"),
            slots: row.get::<_, i32>("slots").cast_unsigned(),
            in_use: u32::try_from(row.get::<_, i64>("held")).unwrap_or(u32::MAX),
            ahead: u32::try_from(row.get::<_, i64>("ahead")).unwrap_or(u32::MAX),
            queues: row.get("served"),
            lease_until: tick(row.get("lease_until")),
            lease_left: tick(row.get("lease_until")).since(tick(row.get("now"))),
        };
        let rows = self.job(Line::Rest, |shared, session| async move {
            session
                .client()
                .query(WORKERS, &[&shared.told_time()])
                .await
                .map_err(failed("reading the workers"))
        });
        Ok(rows.await?.iter().map(worker).collect())
    }
}
