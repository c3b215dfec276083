//! Looking at what is stored. Changes nothing.

use std::collections::HashMap;

use flowgate_core::Tick;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{error::Fault, lanes::moment, lanes::tick, leases};
use crate::{
    record::Record,
    store::{KeyLook, QueueLimits, QueueLook, State, TaskLook},
    task::TaskId,
    terms::KeyTerms,
};

/// What is known of a key.
pub(super) fn key(db: &Connection, name: &str) -> Result<Option<KeyLook>, Fault> {
    key_counted(db, name, u32::MAX)
}

/// The same, with its line counted up to `most`.
pub(super) fn key_counted(db: &Connection, name: &str, most: u32) -> Result<Option<KeyLook>, Fault> {
    let sql = "SELECT id, in_use, paused, pinned, sent, latest FROM keys WHERE name = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([name])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let id: i64 = row.get(0)?;
    let sql = "SELECT (SELECT count(*) FROM (SELECT 1 FROM lanes JOIN tasks ON tasks.lane = lanes.id
            WHERE lanes.key = ?1 AND place IS NOT NULL LIMIT ?2)),
        (SELECT count(*) FROM (SELECT 1 FROM lanes JOIN tasks ON tasks.lane = lanes.id
            WHERE lanes.key = ?1 AND place IS NULL LIMIT ?2))";
    let (waiting, delayed) = db.prepare_cached(sql)?.query_row(params![id, most], counts)?;
    let (pinned, sent): (Option<String>, String) = (row.get(3)?, row.get(4)?);
    let is_latest = row.get(5)?;
    let KeyTerms { pinned, sent, unread } = KeyTerms::read(pinned.as_deref(), &sent, is_latest);
    Ok(Some(KeyLook {
        key: name.to_owned(),
        in_use: row.get(1)?,
        waiting,
        delayed,
        is_paused: row.get(2)?,
        pinned,
        is_latest,
        sent,
        unread,
    }))
}

/// What is known of the queues, in the order in which they are served; the line of each counted up to `most`.
pub(super) fn queues(db: &Connection, most: u32) -> Result<Vec<QueueLook>, Fault> {
    let mut held: HashMap<i64, u32> = HashMap::new();
    for (lane, (count, _)) in leases::recount(db)? {
        *held.entry(leases::place(db, lane)?.queue).or_default() += count;
    }
    let sql = "SELECT id, name, priority, max, paused FROM queues ORDER BY priority, id";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut looks = Vec::new();
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let sql = "SELECT count(place), count(*) - count(place) FROM
            (SELECT place FROM lanes JOIN tasks ON tasks.lane = lanes.id WHERE lanes.queue = ?1 LIMIT ?2)";
        let (waiting, delayed) = db.prepare_cached(sql)?.query_row(params![id, most], counts)?;
        looks.push(QueueLook {
            limits: QueueLimits { name: row.get(1)?, priority: row.get(2)?, max: row.get(3)? },
            in_use: held.get(&id).copied().unwrap_or(0),
            waiting,
            delayed,
            is_paused: row.get(4)?,
        });
    }
    Ok(looks)
}

fn counts(row: &Row<'_>) -> rusqlite::Result<(u64, u64)> {
    Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
}

/// How many tasks are held in all, and how many may be.
pub(super) fn cluster(db: &Connection) -> Result<(u32, Option<u32>), Fault> {
    let cap = db.prepare_cached("SELECT cap FROM cluster")?.query_row([], |row| row.get(0))?;
    Ok((leases::count(db)?, cap))
}

/// What is known of a task.
pub(super) fn task(db: &Connection, id: TaskId, now: Tick) -> Result<Option<TaskLook>, Fault> {
    if let Some(look) = waiting(db, id)? {
        return Ok(Some(look));
    }
    if let Some(look) = held(db, id)? {
        return Ok(Some(look));
    }
    if let Some(look) = done(db, id, now)? {
        return Ok(Some(look));
    }
    Ok(dead(db, Some(TaskId(id.0.saturating_add(1))), 1)?.pop().filter(|look| look.id == id))
}

fn waiting(db: &Connection, id: TaskId) -> Result<Option<TaskLook>, Fault> {
    let sql = "SELECT lane, place, attempt, due_at, record FROM tasks WHERE id = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let lane: i64 = row.get(0)?;
    let state = match row.get::<_, Option<i64>>(1)? {
        Some(place) => {
            let sql = "SELECT count(*) FROM tasks WHERE lane = ?1 AND place < ?2";
            let ahead: i64 = db.prepare_cached(sql)?.query_row([lane, place], |row| row.get(0))?;
            State::Waiting { ahead: ahead.unsigned_abs() }
        }
        None => State::Delayed { until: tick(row.get::<_, Option<i64>>(3)?.unwrap_or(0)) },
    };
    let record = Record::from_bytes(&row.get::<_, Vec<u8>>(4)?).ok();
    let (queue, key, priority) = names(db, lane)?;
    Ok(Some(TaskLook { id, queue, key, priority, attempt: row.get(2)?, state, record }))
}

fn held(db: &Connection, id: TaskId) -> Result<Option<TaskLook>, Fault> {
    let Some((lease, worker, since)) = leases::holder(db, id)? else { return Ok(None) };
    let Some(task) = leases::held(db, lease)?.into_iter().find(|task| task.id == id) else { return Ok(None) };
    let (queue, key, priority) = names(db, task.place.lane)?;
    let record = Record::from_bytes(&task.record).ok();
    let is_at_hand = leases::find(db, lease)?.is_some_and(|lease| lease.is_ahead);
    let state = State::Held { worker, since, is_at_hand };
    Ok(Some(TaskLook { id, queue, key, priority, attempt: task.attempt, state, record }))
}

fn done(db: &Connection, id: TaskId, now: Tick) -> Result<Option<TaskLook>, Fault> {
    let sql = "SELECT queue, key, priority, attempt, result FROM results WHERE id = ?1 AND until > ?2";
    let look = db.prepare_cached(sql)?.query_row(params![id.0, moment(now)], |row| {
        Ok(TaskLook {
            id,
            queue: row.get(0)?,
            key: row.get(1)?,
            priority: row.get(2)?,
            attempt: row.get(3)?,
            state: State::Done { result: row.get(4)? },
            record: None,
        })
    });
    Ok(look.optional()?)
}

/// The names of a lane's queue and key, and its priority.
pub(super) fn names(db: &Connection, lane: i64) -> Result<(String, Option<String>, i16), Fault> {
    let sql = "SELECT queues.name, keys.name, lanes.priority
        FROM lanes JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key
        WHERE lanes.id = ?1";
    let mut statement = db.prepare_cached(sql)?;
    Ok(statement.query_row([lane], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?)
}

/// Tasks that will not run again, the newest first.
pub(super) fn dead(db: &Connection, before: Option<TaskId>, most: u32) -> Result<Vec<TaskLook>, Fault> {
    let sql = "SELECT id, queue, key, priority, attempt, reason, error, record FROM dead
        WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
    let before = before.map_or(i64::MAX, |id| id.0);
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![before, most])?;
    let mut looks = Vec::new();
    while let Some(row) = rows.next()? {
        looks.push(TaskLook {
            id: TaskId(row.get(0)?),
            queue: row.get(1)?,
            key: row.get(2)?,
            priority: row.get(3)?,
            attempt: row.get(4)?,
            state: State::Dead { reason: row.get(5)?, error: row.get(6)? },
            record: Record::from_bytes(&row.get::<_, Vec<u8>>(7)?).ok(),
        });
    }
    Ok(looks)
}
