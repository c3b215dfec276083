//! What is to be seen: keys, queues, tasks, and whether the counts are right.

use tokio_postgres::Row;

use super::{
    columns::HEAVY_LANES,
    connect::{Line, Postgres},
    rows::{key_look, tick},
    send::{self, READY_LANES, SHARE_LANES},
    session::{BEGIN, failed, flight},
};
use crate::{
    record::Record,
    store::{KeyLook, QueueLimits, QueueLook, State, StoreError, TaskLook, WorkerId},
    task::TaskId,
};

const QUEUES: &str = "SELECT name, queues.priority, max, paused, coalesce(held.count, 0) AS held, \
    coalesce(line.waiting, 0) AS waiting, coalesce(line.delayed, 0) AS delayed FROM queues \
    LEFT JOIN (SELECT lanes.queue, count(*) FROM leases CROSS JOIN LATERAL unnest(ids, leases.lanes) AS held (id, lane) \
    JOIN lanes ON lanes.id = held.lane WHERE held.id <> ALL(done) AND ahead_until IS NULL GROUP BY lanes.queue) AS \
    held ON held.queue = queues.id \
    LEFT JOIN (SELECT lanes.queue, sum(waiting)::bigint AS waiting, sum(delayed)::bigint AS delayed FROM (\
    SELECT lane, count(place) AS waiting, count(due_at) AS delayed FROM tasks GROUP BY lane) AS line \
    JOIN lanes ON lanes.id = line.lane GROUP BY lanes.queue) AS line ON line.queue = queues.id \
    ORDER BY queues.priority, name";
/// The same, with each line counted up to so many.
const QUEUES_COUNTED: &str = "SELECT name, queues.priority, max, paused, coalesce(held.count, 0) AS held, \
    line.waiting, line.delayed FROM queues \
    LEFT JOIN (SELECT lanes.queue, count(*) FROM leases CROSS JOIN LATERAL unnest(ids, leases.lanes) AS held (id, lane) \
    JOIN lanes ON lanes.id = held.lane WHERE held.id <> ALL(done) AND ahead_until IS NULL GROUP BY lanes.queue) AS \
    held ON held.queue = queues.id \
    CROSS JOIN LATERAL (SELECT count(place) AS waiting, count(due_at) AS delayed FROM (\
    SELECT place, due_at FROM tasks JOIN lanes ON lanes.id = tasks.lane WHERE lanes.queue = queues.id LIMIT $1) AS \
    counted) AS line \
    ORDER BY queues.priority, name";
/// Each lane is counted by itself: joined, the planner may read all tasks there are.
const KEY: &str = "SELECT in_use, paused, pinned, sent, latest, coalesce(waiting, 0) AS waiting, coalesce(delayed, 0) AS delayed \
    FROM keys CROSS JOIN LATERAL (SELECT sum(line.waiting)::bigint AS waiting, sum(line.delayed)::bigint AS delayed \
    FROM lanes CROSS JOIN LATERAL (SELECT count(place) AS waiting, count(due_at) AS delayed FROM tasks \
    WHERE tasks.lane = lanes.id) AS line WHERE lanes.key = keys.id) AS lines WHERE name = $1";
const WAITING: &str = "SELECT queues.name AS queue, keys.name AS key, lanes.priority, attempt, record, due_at, \
    (SELECT count(*) FROM tasks AS ahead WHERE ahead.lane = tasks.lane AND (ahead.place, ahead.id) < (tasks.place, \
    tasks.id)) AS ahead \
    FROM tasks JOIN lanes ON lanes.id = tasks.lane JOIN queues ON queues.id = lanes.queue \
    LEFT JOIN keys ON keys.id = lanes.key WHERE tasks.id = $1";
const HELD: &str = "SELECT queues.name AS queue, keys.name AS key, lanes.priority, held.attempt, held.record, worker, \
    since, ahead_until IS NOT NULL AS at_hand \
    FROM leases CROSS JOIN LATERAL unnest(ids, leases.lanes, attempts, records) AS held (id, lane, attempt, record) \
    JOIN lanes ON lanes.id = held.lane JOIN queues ON queues.id = lanes.queue \
    LEFT JOIN keys ON keys.id = lanes.key WHERE held.id = $1 AND held.id <> ALL(done)";
const DEAD: &str = "SELECT id, queue, key, priority, attempt, record, reason, error FROM dead \
    WHERE id < $1 ORDER BY id DESC LIMIT $2";
const ONE_DEAD: &str =
    "SELECT id, queue, key, priority, attempt, record, reason, error FROM dead WHERE id = $1";

/// What should be counted, beside what is.
const AUDIT: [(&str, &str); 7] = [
    (
        "key",
        "SELECT name, in_use::bigint AS counted, held FROM (SELECT keys.name, keys.in_use, \
         coalesce((SELECT sum(weight) FROM leases CROSS JOIN LATERAL unnest(ids, leases.lanes, weights) AS held (id, \
         lane, weight) \
         JOIN lanes ON lanes.id = held.lane WHERE lanes.key = keys.id AND held.id <> ALL(done) AND ahead_until IS \
         NULL), 0)::bigint AS held FROM keys) AS all_keys \
         WHERE in_use <> held",
    ),
    (
        "queue",
        "SELECT name, in_use::bigint AS counted, held FROM (SELECT queues.name, queues.in_use, \
         (SELECT count(*) FROM leases CROSS JOIN LATERAL unnest(ids, leases.lanes) AS held (id, lane) \
         JOIN lanes ON lanes.id = held.lane WHERE lanes.queue = queues.id AND held.id <> ALL(done) AND ahead_until IS \
         NULL) AS held \
         FROM queues WHERE max IS NOT NULL) AS all_queues WHERE in_use <> held",
    ),
    (
        "cluster",
        "SELECT 'cluster' AS name, in_use::bigint AS counted, held FROM cluster CROSS JOIN (\
         SELECT coalesce(sum(cardinality(ids) - cardinality(done)), 0)::bigint AS held FROM leases WHERE ahead_until \
         IS NULL) AS all_leases \
         WHERE cap IS NOT NULL AND in_use <> held",
    ),
    (
        "idle lane",
        "SELECT lanes.id::text AS name, 0::bigint AS counted, count(*) AS held FROM lanes JOIN tasks ON tasks.lane = lanes.id \
         WHERE state = 0 AND place IS NOT NULL AND good_until IS NULL GROUP BY lanes.id",
    ),
    (
        "lane held by its key, which holds nothing,",
        "SELECT lanes.id::text AS name, keys.in_use::bigint AS counted, (SELECT count(*) FROM tasks WHERE tasks.lane = \
         lanes.id) AS held FROM lanes JOIN keys ON keys.id = lanes.key CROSS JOIN LATERAL (\
         SELECT weight, good_until FROM tasks WHERE tasks.lane = lanes.id AND place IS NOT NULL ORDER BY place, id LIMIT 1) \
         AS head WHERE state = 2 AND in_use = 0 AND NOT paused AND weight = 1 AND good_until IS NULL",
    ),
    (
        "lane without its key",
        "SELECT lanes.id::text AS name, 0::bigint AS counted, (SELECT count(*) FROM tasks WHERE tasks.lane = lanes.id) AS held \
         FROM lanes WHERE key IS NOT NULL AND NOT EXISTS (SELECT FROM keys WHERE keys.id = lanes.key)",
    ),
    (
        "before the mark of lane",
        "SELECT lanes.id::text AS name, 0::bigint AS counted, count(*) AS held FROM lanes JOIN marks ON marks.lane = lanes.id \
         JOIN tasks ON tasks.lane = lanes.id WHERE place < low GROUP BY lanes.id",
    ),
];

impl Postgres {
    async fn ask(&self, sql: &'static str, params: Vec<i64>) -> Result<Vec<Row>, StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
                params.iter().map(|id| id as _).collect();
            session.client().query(sql, params.as_slice()).await.map_err(failed("reading"))
        })
        .await
    }

    pub(super) async fn see_queues(&self, most: u32) -> Result<Vec<QueueLook>, StoreError> {
        let number = |row: &Row, column: &str| row.get::<_, i64>(column) as u64;
        let look = |row: &Row| QueueLook {
            limits: QueueLimits {
                name: row.get("name"),
                priority: row.get("priority"),
                max: row.get::<_, Option<i32>>("max").map(|max| max as u32),
            },
            in_use: number(row, "held") as u32,
            waiting: number(row, "waiting"),
            delayed: number(row, "delayed"),
            is_paused: row.get("paused"),
        };
        let rows = match most {
            u32::MAX => self.ask(QUEUES, Vec::new()).await?,
            most => self.ask(QUEUES_COUNTED, vec![i64::from(most)]).await?,
        };
        Ok(rows.iter().map(look).collect())
    }

    pub(super) async fn see_cluster(&self) -> Result<(u32, Option<u32>), StoreError> {
        const SQL: &str = "SELECT cap, (SELECT coalesce(sum(cardinality(ids) - cardinality(done)), 0) FROM leases \
            WHERE ahead_until IS NULL)::bigint FROM cluster";
        let rows = self.ask(SQL, Vec::new()).await?;
        let row = rows.first().expect("there is always one cluster");
        Ok((row.get::<_, i64>(1) as u32, row.get::<_, Option<i32>>(0).map(|cap| cap as u32)))
    }

    pub(super) async fn see_key(&self, key: String) -> Result<Option<KeyLook>, StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let row = session.client().query_opt(KEY, &[&key]).await.map_err(failed("reading a key"))?;
            Ok(row.map(|row| key_look(&row, key)))
        })
        .await
    }

    /// A task moves from line to lease to its end, and is looked for in that order. One that is to run again moves back,
    /// perhaps between two of these looks: so what is nowhere is looked for once more.
    pub(super) async fn see_task(&self, id: TaskId) -> Result<Option<TaskLook>, StoreError> {
        match self.find_task(id).await? {
            None => self.find_task(id).await,
            found => Ok(found),
        }
    }

    async fn find_task(&self, id: TaskId) -> Result<Option<TaskLook>, StoreError> {
        if let Some(row) = self.ask(WAITING, vec![id.0]).await?.first() {
            let state = match row.get::<_, Option<i64>>("due_at") {
                Some(due) => State::Delayed { until: tick(due) },
                None => State::Waiting { ahead: row.get::<_, i64>("ahead") as u64 },
            };
            return look(row, id, state).map(Some);
        }
        if let Some(row) = self.ask(HELD, vec![id.0]).await?.first() {
            let (worker, since) = (WorkerId(row.get("worker")), tick(row.get("since")));
            let state = State::Held { worker, since, is_at_hand: row.get("at_hand") };
            return look(row, id, state).map(Some);
        }
        if let Some(row) = self.ask("SELECT result FROM results WHERE id = $1", vec![id.0]).await?.first() {
            let state = State::Done { result: row.get("result") };
            let empty = TaskLook {
                id,
                queue: String::new(),
                key: None,
                priority: 0,
                attempt: 0,
                state,
                record: None,
            };
            return Ok(Some(empty));
        }
        self.ask(ONE_DEAD, vec![id.0]).await?.first().map(dead).transpose()
    }

    pub(super) async fn see_dead(
        &self,
        before: Option<TaskId>,
        most: u32,
    ) -> Result<Vec<TaskLook>, StoreError> {
        let rows = self.ask(DEAD, vec![before.map_or(i64::MAX, |id| id.0), i64::from(most)]).await?;
        rows.iter().map(dead).collect()
    }

    pub(super) async fn send_back(&self, id: TaskId) -> Result<bool, StoreError> {
        self.job(Line::Sends, move |shared, mut session| async move {
            let find = "SELECT queue, key, priority, limits, weight, record FROM dead WHERE id = $1";
            let row =
                session.client().query_opt(find, &[&id.0]).await.map_err(failed("looking up a task"))?;
            let Some(row) = row else { return Ok(false) };
            let name = super::lanes::LaneName {
                queue: row.get("queue"),
                key: row.get("key"),
                priority: row.get("priority"),
                limits: row.get("limits"),
            };
            let (weight, record): (i32, Vec<u8>) = (row.get("weight"), row.get("record"));
            loop {
                let lanes = shared.lanes.resolve(&session, std::slice::from_ref(&name)).await?;
                session.begin();
                let (_, _, gone, _, _, added, _) = flight!(
                    session.run(BEGIN),
                    session.carry(record.len()),
                    session.query(send::REMOVE_DEAD, [&id.0]),
                    session.query(SHARE_LANES, [&lanes]),
                    session.query_if(weight > 1, HEAVY_LANES, [&lanes]),
                    session.query(send::ADD_REVIVED, [&id.0, &lanes[0], &weight, &record]),
                    session.query(READY_LANES, [&lanes]),
                )?;
                if !gone.is_empty() && !added.is_empty() {
                    session.run("COMMIT").await?;
                    session.end();
                    return Ok(true);
                }
                session.roll_back().await;
                if gone.is_empty() {
                    return Ok(false);
                }
                // Its lane had been swept away, being empty: it is made again.
                shared.lanes.forget();
            }
        })
        .await
    }

    pub(super) async fn recount(&self) -> Result<Vec<String>, StoreError> {
        let mut wrong = Vec::new();
        for (what, sql) in AUDIT {
            for row in self.ask(sql, Vec::new()).await? {
                let (name, counted, held): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
                wrong.push(format!("{what} {name}: {counted} counted, {held} found"));
            }
        }
        Ok(wrong)
    }
}

fn dead(row: &Row) -> Result<TaskLook, StoreError> {
    let state = State::Dead { reason: row.get("reason"), error: row.get("error") };
    look(row, TaskId(row.get("id")), state)
}

pub(super) fn look(row: &Row, id: TaskId, state: State) -> Result<TaskLook, StoreError> {
    Ok(TaskLook {
        id,
        queue: row.get("queue"),
        key: row.get("key"),
        priority: row.get("priority"),
        attempt: row.get::<_, i32>("attempt") as u32,
        state,
        record: Record::from_bytes(row.get("record")).ok(),
    })
}
