//! Notes, documents and lists.

use std::sync::Arc;

use flowgate_core::Tick;
use tokio_postgres::{Row, types::ToSql};

use super::{
    connect::{Line, Postgres},
    look,
    rows::{stored, tick},
    session::failed,
};
use crate::{
    record::{NUMBERS, beginning_of},
    store::{
        Among, Arrears, BEGINNING, Cancelled, Census, Document, KeyPage, KeyQuery, KeySpent, KindOf, Leaving,
        MOST_COUNTED, NewNote, Note, NoteQuery, OLDEST_LOOKED_AT, Reply, Run, RunChange, RunOutcome,
        RunQuery, RunStep, Shelf, State, StoreError, TaskLook, WorkerId,
    },
    task::TaskId,
};

/// At most so many rows are removed at once.
const BATCH: i64 = 2000;
/// Both halves in one statement, so that a task that is just claimed is in one of them.
const LIVE: &str = "SELECT live.id, queues.name AS queue, keys.name AS key, lanes.priority, attempt, record, due_at, \
    worker, since, at_hand \
    FROM ((SELECT id, lane, attempt, record, due_at, NULL::bigint AS worker, NULL::bigint AS since, false AS at_hand FROM tasks \
    WHERE id > $1 ORDER BY id LIMIT $2) UNION ALL \
    (SELECT held.id, held.lane, held.attempt, held.record, NULL, worker, since, ahead_until IS NOT NULL FROM leases \
    CROSS JOIN LATERAL unnest(ids, leases.lanes, attempts, records) AS held (id, lane, attempt, record) \
    WHERE held.id > $1 AND held.id <> ALL(done) ORDER BY held.id LIMIT $2)) AS live \
    JOIN lanes ON lanes.id = live.lane JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key \
    ORDER BY live.id LIMIT $2";

/// Both read the end of a table by its key, and no further than a bound.
const DEAD: &str = "SELECT queue, count(*) FROM (SELECT queue FROM dead ORDER BY id DESC LIMIT $1) AS newest GROUP BY \
    queue ORDER BY queue";
const OLDEST: &str = "SELECT first.id, queues.name AS queue, keys.name AS key, lanes.priority, attempt, record, due_at, \
    NULL::bigint AS worker, NULL::bigint AS since, false AS at_hand \
    FROM (SELECT id, lane, place, attempt, record, due_at FROM tasks ORDER BY id LIMIT $2) AS first \
    JOIN lanes ON lanes.id = first.lane JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key \
    WHERE place IS NOT NULL AND queues.name = $1 ORDER BY first.id LIMIT 1";

pub(super) type Values = Vec<Box<dyn ToSql + Sync + Send>>;

impl Postgres {
    /// One statement, on the connection for everything else.
    pub(super) async fn rows(
        &self,
        sql: impl AsRef<str> + Send + 'static,
        values: Values,
    ) -> Result<Vec<Row>, StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
            session.client().query(sql.as_ref(), &values).await.map_err(failed("reading stored data"))
        })
        .await
    }
}

/// What a record of this kind with these bytes in its place matches, in hexadecimal digits.
fn pattern(KindOf { kind, from, .. }: &KindOf, bytes: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (kind, skipped) = (hex(&beginning_of(kind)), from * 2);
    // A number ends with the first byte below 0x80.
    format!("^{kind}(?:(?:[89a-f].)*[0-7].){{{NUMBERS}}}.{{{skipped}}}{}", hex(bytes))
}

impl Shelf for Postgres {
    fn now(&self) -> Reply<'_, Tick> {
        Box::pin(async move {
            let told = self.shared.told_time();
            let rows = self.rows("SELECT now_ns($1)", vec![Box::new(told)]).await?;
            Ok(tick(rows.first().map_or(0, |row| row.get(0))))
        })
    }

    fn write_notes(&self, notes: Arc<[NewNote]>) -> Reply<'_, ()> {
        Box::pin(self.add_notes(notes))
    }

    fn notes(&self, query: NoteQuery) -> Reply<'_, Vec<Note>> {
        Box::pin(self.read_notes(query))
    }

    fn put_document(&self, document: Document) -> Reply<'_, bool> {
        // The version is looked at again under the row's lock, if somebody else was quicker.
        const SQL: &str = "INSERT INTO documents (kind, name, version, body) SELECT $1, $2, 1, $3 \
            WHERE $4::bigint IS NULL OR $4 = coalesce((SELECT version FROM documents WHERE kind = $1 AND name = $2), 0) \
            ON CONFLICT (kind, name) DO UPDATE SET version = documents.version + 1, body = excluded.body \
            WHERE $4::bigint IS NULL OR documents.version = $4 RETURNING version";
        Box::pin(async move {
            let Document { kind, name, body, version } = document;
            let values: Values = vec![Box::new(kind), Box::new(name), Box::new(body), Box::new(version)];
            Ok(!self.rows(SQL, values).await?.is_empty())
        })
    }

    fn document(&self, kind: String, name: String) -> Reply<'_, Option<Document>> {
        const SQL: &str = "SELECT kind, name, body, version FROM documents WHERE kind = $1 AND name = $2";
        Box::pin(async move {
            Ok(self.rows(SQL, vec![Box::new(kind), Box::new(name)]).await?.first().map(document))
        })
    }

    fn documents(&self, kind: String, after: String, most: u32) -> Reply<'_, Vec<Document>> {
        const SQL: &str = "SELECT kind, name, body, version FROM documents WHERE kind = $1 AND name > $2 \
            ORDER BY name LIMIT $3";
        Box::pin(async move {
            let values: Values = vec![Box::new(kind), Box::new(after), Box::new(i64::from(most))];
            Ok(self.rows(SQL, values).await?.iter().map(document).collect())
        })
    }

    fn remove_document(&self, kind: String, name: String) -> Reply<'_, bool> {
        const SQL: &str = "DELETE FROM documents WHERE kind = $1 AND name = $2 RETURNING name";
        Box::pin(async move { Ok(!self.rows(SQL, vec![Box::new(kind), Box::new(name)]).await?.is_empty()) })
    }

    fn remove_document_at(&self, kind: String, name: String, version: i64) -> Reply<'_, bool> {
        const SQL: &str =
            "DELETE FROM documents WHERE kind = $1 AND name = $2 AND version = $3 RETURNING name";
        Box::pin(async move {
            let values: Values = vec![Box::new(kind), Box::new(name), Box::new(version)];
            Ok(!self.rows(SQL, values).await?.is_empty())
        })
    }

    fn live_tasks(&self, after: TaskId, most: u32) -> Reply<'_, Vec<TaskLook>> {
        Box::pin(async move {
            let rows = self.rows(LIVE, vec![Box::new(after.0), Box::new(i64::from(most))]).await?;
            rows.iter().map(live).collect()
        })
    }

    fn newest_task(&self) -> Reply<'_, TaskId> {
        Box::pin(async move {
            let rows = self.rows("SELECT last_value FROM task_ids", Vec::new()).await?;
            Ok(TaskId(rows.first().map_or(i64::MAX, |row| row.get(0))))
        })
    }

    fn keys(&self, after: String, most: u32) -> Reply<'_, Vec<KeySpent>> {
        Box::pin(self.list_keys(after, most))
    }

    fn busiest_keys(&self, most: u32) -> Reply<'_, Vec<KeySpent>> {
        Box::pin(self.see_busiest(most))
    }

    fn key_spent(&self, key: String) -> Reply<'_, Option<KeySpent>> {
        Box::pin(async move { Ok(self.see_keys(vec![key], u32::MAX).await?.pop()) })
    }

    fn find_keys(&self, query: KeyQuery) -> Reply<'_, KeyPage> {
        Box::pin(self.page_of_keys(query))
    }

    fn keys_named(&self, names: Vec<String>) -> Reply<'_, Vec<KeySpent>> {
        Box::pin(self.see_keys(names, MOST_COUNTED))
    }

    fn census(&self, without: Vec<String>) -> Reply<'_, Census> {
        Box::pin(self.count_all(without))
    }

    fn count_of(&self, kind: KindOf, among: Among) -> Reply<'_, u64> {
        let (found, queue) = match among {
            Among::Dead { queue } => {
                let found = "SELECT record FROM (SELECT queue, reason, record FROM dead ORDER BY id DESC LIMIT $1) AS newest \
                    WHERE queue = $2 AND reason <> 'cancelled'";
                (found, queue)
            }
            Among::Keyless { queue } => {
                let found = "SELECT record FROM lanes JOIN tasks ON tasks.lane = lanes.id WHERE key IS NULL AND place \
                    IS NOT NULL \
                    AND queue = (SELECT id FROM queues WHERE name = $2) LIMIT $1";
                (found, queue)
            }
        };
        // The beginning is taken once for both questions, and of a long record no more than that is fetched.
        let sql = format!(
            "SELECT count(*) FROM (SELECT encode(substring(record FOR {BEGINNING}), 'hex') AS first \
             FROM ({found}) AS found OFFSET 0) AS found WHERE first ~ $3::text AND ($4::text IS NULL OR first !~ $4)"
        );
        let with = pattern(&kind, &kind.with);
        let without =
            Some(&kind.without).filter(|bytes| !bytes.is_empty()).map(|bytes| pattern(&kind, bytes));
        let most = i64::from(MOST_COUNTED);
        let values: Values = vec![Box::new(most), Box::new(queue), Box::new(with), Box::new(without)];
        Box::pin(async move {
            let rows = self.rows(sql, values).await?;
            Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0).unsigned_abs()))
        })
    }

    fn arrears(&self, queue: String) -> Reply<'_, Arrears> {
        Box::pin(async move {
            let dead = self.rows(DEAD, vec![Box::new(i64::from(MOST_COUNTED))]).await?;
            let dead = dead.iter().map(|row| (row.get(0), row.get::<_, i64>(1).unsigned_abs())).collect();
            let oldest =
                self.rows(OLDEST, vec![Box::new(queue), Box::new(i64::from(OLDEST_LOOKED_AT))]).await?;
            Ok(Arrears { dead, oldest: oldest.first().map(live).transpose()? })
        })
    }

    fn call_off(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>> {
        Box::pin(self.cancel_tasks(ids, Leaving::Nothing))
    }

    fn remove_all_dead(&self, ids: Vec<TaskId>) -> Reply<'_, u64> {
        const SQL: &str = "DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE id = ANY($1) ORDER BY id FOR \
            UPDATE) RETURNING id";
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        Box::pin(async move { Ok(self.rows(SQL, vec![Box::new(ids)]).await?.len() as u64) })
    }

    fn change_runs(&self, changes: Vec<RunChange>) -> Reply<'_, Vec<RunOutcome>> {
        Box::pin(self.write_runs(changes))
    }

    fn run(&self, name: String) -> Reply<'_, Option<(Run, Vec<RunStep>)>> {
        Box::pin(self.see_run(name))
    }

    fn runs(&self, query: RunQuery) -> Reply<'_, Vec<Run>> {
        Box::pin(self.see_runs(query))
    }

    fn waiting(&self, tasks: Vec<TaskId>) -> Reply<'_, Vec<TaskId>> {
        const SQL: &str = "SELECT id FROM tasks WHERE id = ANY($1) ORDER BY id";
        Box::pin(async move {
            let tasks: Vec<i64> = tasks.iter().map(|task| task.0).collect();
            Ok(self.rows(SQL, vec![Box::new(tasks)]).await?.iter().map(|row| TaskId(row.get(0))).collect())
        })
    }

    fn prune(&self, notes_before: Tick, dead_before: Tick) -> Reply<'_, u64> {
        const SQL: &str = "WITH \
            gone AS (DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE at < $1 ORDER BY at LIMIT $2) RETURNING 1), \
            ended AS (DELETE FROM runs WHERE name IN (SELECT name FROM runs WHERE ended < $1 ORDER BY ended LIMIT $2 / 10) \
            RETURNING name), \
            left_over AS (DELETE FROM steps WHERE run IN (SELECT name FROM ended)) \
            SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM ended)";
        Box::pin(async move {
            let notes = self.prune_notes(notes_before).await?;
            let rows = self.rows(SQL, vec![Box::new(stored(dead_before)), Box::new(BATCH)]).await?;
            Ok(notes + rows.first().map_or(0, |row| row.get::<_, i64>(0).unsigned_abs()))
        })
    }
}

fn document(row: &Row) -> Document {
    Document { kind: row.get(0), name: row.get(1), body: row.get(2), version: row.get(3) }
}

fn live(row: &Row) -> Result<TaskLook, StoreError> {
    let state = match (row.get::<_, Option<i64>>("worker"), row.get::<_, Option<i64>>("due_at")) {
        (Some(worker), _) => State::Held {
            worker: WorkerId(worker),
            since: tick(row.get("since")),
            is_at_hand: row.get("at_hand"),
        },
        (None, Some(due)) => State::Delayed { until: tick(due) },
        (None, None) => State::Waiting { ahead: 0 },
    };
    look::look(row, TaskId(row.get("id")), state)
}
