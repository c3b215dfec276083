//! Notes, documents and lists.

use std::sync::Arc;

use flowgate_core::Tick;
use rusqlite::{Connection, OptionalExtension as _, Row, blob::Blob, params};

use super::{
    error::Fault,
    keys,
    lanes::{moment, tick},
    leases, look, notes, runs,
    store::Sqlite,
    upkeep,
};
use crate::{
    record::{Parts, Record},
    store::{
        Among, Arrears, BEGINNING, Cancelled, Census, Document, KeyPage, KeyQuery, KeySpent, KindOf, Leaving,
        MOST_COUNTED, NewNote, Note, NoteQuery, OLDEST_LOOKED_AT, Reply, Run, RunChange, RunOutcome,
        RunQuery, RunStep, Shelf, State, TaskLook, WorkerId,
    },
    task::TaskId,
};

/// At most so many rows are removed at once, so that claims are not kept waiting.
const BATCH: u32 = 2000;

impl Shelf for Sqlite {
    fn now(&self) -> Reply<'_, Tick> {
        self.threads.read("reading the clock", |_, now| Ok(now))
    }

    fn write_notes(&self, notes: Arc<[NewNote]>) -> Reply<'_, ()> {
        self.threads.write("writing notes", move |hand| notes::write(hand.db, &notes))
    }

    fn notes(&self, query: NoteQuery) -> Reply<'_, Vec<Note>> {
        self.threads.read("reading notes", move |db, _| notes::read(db, &query))
    }

    fn put_document(&self, document: Document) -> Reply<'_, bool> {
        self.threads.write("writing a document", move |hand| put(hand.db, &document))
    }

    fn document(&self, kind: String, name: String) -> Reply<'_, Option<Document>> {
        self.threads.read("reading a document", move |db, _| {
            let sql = "SELECT kind, name, body, version FROM documents WHERE kind = ?1 AND name = ?2";
            Ok(db.prepare_cached(sql)?.query_row([&kind, &name], document).optional()?)
        })
    }

    fn documents(&self, kind: String, after: String, most: u32) -> Reply<'_, Vec<Document>> {
        self.threads.read("reading documents", move |db, _| {
            let sql = "SELECT kind, name, body, version FROM documents WHERE kind = ?1 AND name > ?2
                ORDER BY name LIMIT ?3";
            let mut statement = db.prepare_cached(sql)?;
            let found = statement.query_map(params![kind, after, most], document)?;
            Ok(found.collect::<Result<_, _>>()?)
        })
    }

    fn remove_document(&self, kind: String, name: String) -> Reply<'_, bool> {
        self.threads.write("removing a document", move |hand| {
            let sql = "DELETE FROM documents WHERE kind = ?1 AND name = ?2";
            Ok(hand.db.prepare_cached(sql)?.execute([&kind, &name])? > 0)
        })
    }

    fn remove_document_at(&self, kind: String, name: String, version: i64) -> Reply<'_, bool> {
        self.threads.write("removing a document", move |hand| {
            let sql = "DELETE FROM documents WHERE kind = ?1 AND name = ?2 AND version = ?3";
            Ok(hand.db.prepare_cached(sql)?.execute(params![kind, name, version])? > 0)
        })
    }

    fn live_tasks(&self, after: TaskId, most: u32) -> Reply<'_, Vec<TaskLook>> {
        self.threads.read("listing tasks", move |db, _| live(db, after, most))
    }

    fn newest_task(&self) -> Reply<'_, TaskId> {
        self.threads.read("finding the newest task", |db, _| {
            Ok(TaskId(db.prepare_cached("SELECT last FROM numbers")?.query_row([], |row| row.get(0))?))
        })
    }

    fn keys(&self, after: String, most: u32) -> Reply<'_, Vec<KeySpent>> {
        self.threads.read("listing keys", move |db, now| {
            let sql = "SELECT name FROM keys WHERE name > ?1 ORDER BY name LIMIT ?2";
            let mut statement = db.prepare_cached(sql)?;
            let names = statement.query_map(params![after, most], |row| row.get(0))?;
            let names: Vec<String> = names.collect::<Result<_, _>>()?;
            names.iter().filter_map(|name| keys::spent(db, name, u32::MAX, now).transpose()).collect()
        })
    }

    fn busiest_keys(&self, most: u32) -> Reply<'_, Vec<KeySpent>> {
        self.threads.read("finding the busiest keys", move |db, now| {
            // Tasks are counted once for all keys, not once for each.
            let sql = "SELECT name FROM keys LEFT JOIN (SELECT lanes.key AS key, sum(waiting) AS waiting, \
                sum(delayed) AS delayed FROM (SELECT lane, count(place) AS waiting, count(due_at) AS delayed FROM tasks \
                GROUP BY lane) AS line JOIN lanes ON lanes.id = line.lane GROUP BY lanes.key) AS line ON line.key = keys.id \
                ORDER BY coalesce(line.waiting, 0) + in_use DESC, coalesce(line.delayed, 0) DESC, name LIMIT ?1";
            let mut statement = db.prepare_cached(sql)?;
            let names = statement.query_map(params![most], |row| row.get(0))?;
            let names: Vec<String> = names.collect::<Result<_, _>>()?;
            names.iter().filter_map(|name| keys::spent(db, name, u32::MAX, now).transpose()).collect()
        })
    }

    fn key_spent(&self, key: String) -> Reply<'_, Option<KeySpent>> {
        self.threads.read("reading a key", move |db, now| keys::spent(db, &key, u32::MAX, now))
    }

    fn find_keys(&self, query: KeyQuery) -> Reply<'_, KeyPage> {
        self.threads.read("searching keys", move |db, now| keys::find(db, &query, now))
    }

    fn keys_named(&self, names: Vec<String>) -> Reply<'_, Vec<KeySpent>> {
        self.threads.read("reading keys", move |db, now| keys::named(db, &names, now))
    }

    fn census(&self, without: Vec<String>) -> Reply<'_, Census> {
        self.threads.read("counting keys", move |db, _| keys::census(db, &without))
    }

    fn count_of(&self, kind: KindOf, among: Among) -> Reply<'_, u64> {
        self.threads.read("counting tasks of a kind", move |db, _| count_of(db, &kind, &among))
    }

    fn arrears(&self, queue: String) -> Reply<'_, Arrears> {
        self.threads.read("finding unfinished changes", move |db, _| arrears(db, &queue))
    }

    fn call_off(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>> {
        self.threads.write("cancelling tasks", move |hand| upkeep::cancel_all(hand, &ids, Leaving::Nothing))
    }

    fn remove_all_dead(&self, ids: Vec<TaskId>) -> Reply<'_, u64> {
        self.threads.write("removing dead tasks", move |hand| {
            let mut remove = hand.db.prepare_cached("DELETE FROM dead WHERE id = ?1")?;
            ids.iter().try_fold(0, |removed, id| Ok(removed + remove.execute([id.0])? as u64))
        })
    }

    fn change_runs(&self, changes: Vec<RunChange>) -> Reply<'_, Vec<RunOutcome>> {
        self.threads.write("changing runs", move |hand| runs::change(hand, &changes))
    }

    fn run(&self, name: String) -> Reply<'_, Option<(Run, Vec<RunStep>)>> {
        self.threads.read("reading a run", move |db, _| runs::run(db, &name))
    }

    fn runs(&self, query: RunQuery) -> Reply<'_, Vec<Run>> {
        self.threads.read("listing runs", move |db, _| runs::runs(db, &query))
    }

    fn waiting(&self, tasks: Vec<TaskId>) -> Reply<'_, Vec<TaskId>> {
        self.threads.read("reading tasks", move |db, _| runs::waiting(db, &tasks))
    }

    fn prune(&self, notes_before: Tick, dead_before: Tick) -> Reply<'_, u64> {
        self.threads.write("removing old data", move |hand| {
            let mut removed = notes::prune(hand.db, moment(notes_before))?;
            let sql = "DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE at < ?1 ORDER BY at LIMIT ?2)";
            removed += hand.db.prepare_cached(sql)?.execute(params![moment(dead_before), BATCH])?;
            removed += runs::prune(hand.db, moment(dead_before), BATCH / 10)?;
            Ok(removed as u64)
        })
    }
}

fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document { kind: row.get(0)?, name: row.get(1)?, body: row.get(2)?, version: row.get(3)? })
}

fn put(db: &Connection, document: &Document) -> Result<bool, Fault> {
    let Document { kind, name, body, version } = document;
    let sql = "INSERT INTO documents (kind, name, version, body) SELECT ?1, ?2, 1, ?3
        WHERE ?4 IS NULL OR ?4 = coalesce((SELECT version FROM documents WHERE kind = ?1 AND name = ?2), 0)
        ON CONFLICT (kind, name) DO UPDATE SET version = documents.version + 1, body = excluded.body";
    Ok(db.prepare_cached(sql)?.execute(params![kind, name, body, version])? > 0)
}

/// Reads no more of a record than its first bytes, however long it is: a function of SQL would be given all of it.
fn count_of(db: &Connection, meant: &KindOf, among: &Among) -> Result<u64, Fault> {
    let (table, found, queue) = match among {
        Among::Dead { queue } => {
            let found = "SELECT id FROM (SELECT id, queue, reason FROM dead ORDER BY id DESC LIMIT ?1)
                WHERE queue = ?2 AND reason <> 'cancelled'";
            ("dead", found, queue)
        }
        Among::Keyless { queue } => {
            let found = "SELECT tasks.id FROM lanes JOIN tasks ON tasks.lane = lanes.id WHERE key = 0 AND place IS NOT NULL
                AND queue = (SELECT id FROM queues WHERE name = ?2) LIMIT ?1";
            ("tasks", found, queue)
        }
    };
    let mut statement = db.prepare_cached(found)?;
    let mut rows = statement.query(params![MOST_COUNTED, queue])?;
    let (mut records, mut bytes, mut count) = (None::<Blob<'_>>, [0; BEGINNING], 0);
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let record = match &mut records {
            Some(record) => {
                record.reopen(id)?;
                record
            }
            None => records.insert(db.blob_open("main", table, "record", id, true)?),
        };
        let length = record.read_at(&mut bytes, 0)?;
        count += u64::from(is_meant(&bytes[..length], meant));
    }
    Ok(count)
}

/// Whether a record that begins so is one of these.
fn is_meant(record: &[u8], KindOf { kind, from, with, without }: &KindOf) -> bool {
    let Some(parts) = Parts::of(record).ok().filter(|parts| parts.kind == kind) else { return false };
    let begins = |body: &[u8]| body.starts_with(with) && (without.is_empty() || !body.starts_with(without));
    parts.body.get(*from..).is_some_and(begins)
}

/// Neither costs more the more there is: both read the end of a table by its key, and no further than a bound.
fn arrears(db: &Connection, queue: &str) -> Result<Arrears, Fault> {
    let sql = "SELECT queue, count(*) FROM (SELECT queue FROM dead ORDER BY id DESC LIMIT ?1) GROUP BY queue ORDER BY queue";
    let mut statement = db.prepare_cached(sql)?;
    let dead =
        statement.query_map([MOST_COUNTED], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
    let dead = dead.collect::<Result<_, _>>()?;
    let sql = "SELECT id, lane, attempt, due_at, record FROM tasks WHERE id = (SELECT first.id FROM
        (SELECT id, lane, place FROM tasks ORDER BY id LIMIT ?2) AS first JOIN lanes ON lanes.id = first.lane
        WHERE place IS NOT NULL AND lanes.queue = (SELECT id FROM queues WHERE name = ?1) ORDER BY first.id LIMIT 1)";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![queue, OLDEST_LOOKED_AT])?;
    let oldest = rows.next()?.map(|row| unheld(db, row)).transpose()?;
    Ok(Arrears { dead, oldest })
}

/// A task that nobody holds: `id, lane, attempt, due_at, record`.
fn unheld(db: &Connection, row: &Row<'_>) -> Result<TaskLook, Fault> {
    let state = match row.get::<_, Option<i64>>(3)? {
        Some(due) => State::Delayed { until: tick(due) },
        None => State::Waiting { ahead: 0 },
    };
    let (queue, key, priority) = look::names(db, row.get(1)?)?;
    let record = Record::from_bytes(&row.get::<_, Vec<u8>>(4)?).ok();
    let (id, attempt) = (TaskId(row.get(0)?), row.get(2)?);
    Ok(TaskLook { id, queue, key, priority, attempt, state, record })
}

/// Tasks that wait, are delayed or are held.
fn live(db: &Connection, after: TaskId, most: u32) -> Result<Vec<TaskLook>, Fault> {
    let sql = "SELECT id, lane, attempt, due_at, record FROM tasks WHERE id > ?1 ORDER BY id LIMIT ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![after.0, most])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(unheld(db, row)?);
    }
    let mut statement = db
        .prepare_cached("SELECT id, worker, since, ahead_until IS NOT NULL FROM leases WHERE highest > ?1")?;
    let leases =
        statement.query_map([after.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let leases: Vec<(i64, i64, i64, bool)> = leases.collect::<Result<_, _>>()?;
    for (lease, worker, since, is_at_hand) in leases {
        for task in leases::held(db, lease)?.into_iter().filter(|task| task.id > after) {
            let (queue, key, priority) = look::names(db, task.place.lane)?;
            let record = Record::from_bytes(&task.record).ok();
            let state = State::Held { worker: WorkerId(worker), since: tick(since), is_at_hand };
            all.push(TaskLook { id: task.id, queue, key, priority, attempt: task.attempt, state, record });
        }
    }
    all.sort_unstable_by_key(|task| task.id);
    all.truncate(most as usize);
    Ok(all)
}
