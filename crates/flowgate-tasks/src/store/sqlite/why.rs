//! What runs, what waits, and what stands between a task and its start. Changes nothing.

use flowgate_core::Tick;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{
    candidates::read_key,
    error::Fault,
    lanes::{READY, moment, tick},
    leases, look,
};
use crate::{
    record::kind_of,
    store::{Elsewhere, Holder, MOST_COUNTED, Of, Standing, State, TaskLook, Under, WorkerId, WorkerLook},
    task::TaskId,
};

/// Of many lanes no more tasks are remembered than these, or twice as many as are asked for.
const MOST_SORTED: usize = 10_000;

/// The tasks that are held, the oldest first, and then what is only at hand.
pub(super) fn holders(db: &Connection, of: &Of, most: u32, now: Tick) -> Result<Vec<Holder>, Fault> {
    let lease = match of {
        Of::Task(id) => match leases::holder(db, *id)? {
            Some((lease, ..)) => Some(lease),
            None => return Ok(Vec::new()),
        },
        _ => None,
    };
    let sql = "SELECT id, worker, since, ahead_until IS NOT NULL AS at_hand FROM leases
        WHERE ?1 IS NULL OR id = ?1 ORDER BY at_hand, since, id";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([lease])?;
    let mut holders = Vec::new();
    while let Some(row) = rows.next()? {
        for task in leases::held(db, row.get(0)?)? {
            let (queue, key, _) = look::names(db, task.place.lane)?;
            let is_of = match of {
                Of::All => true,
                Of::Queue(name) => queue == *name,
                Of::Key(name) => key.as_ref() == Some(name),
                Of::Task(id) => task.id == *id,
            };
            if !is_of {
                continue;
            }
            if holders.len() >= most as usize {
                return Ok(holders);
            }
            let kind = kind_of(&task.record);
            let (worker, held_for) = (WorkerId(row.get(1)?), now.since(tick(row.get(2)?)));
            let (weight, attempt, is_at_hand) = (task.weight, task.attempt, row.get(3)?);
            let id = task.id;
            holders.push(Holder { id, kind, queue, key, weight, attempt, worker, held_for, is_at_hand });
        }
    }
    Ok(holders)
}

/// The tasks that nobody holds: those in line by their place, then those that are delayed.
pub(super) fn line(db: &Connection, of: &Of, most: u32, now: Tick) -> Result<Vec<TaskLook>, Fault> {
    let (condition, name) = match of {
        Of::Task(id) => {
            let found = look::task(db, *id, now)?;
            let waits = |look: &TaskLook| matches!(look.state, State::Waiting { .. } | State::Delayed { .. });
            return Ok(found.filter(waits).into_iter().take(most as usize).collect());
        }
        Of::All => ("?1 = ''", ""),
        Of::Queue(name) => ("lanes.queue = (SELECT id FROM queues WHERE name = ?1)", name.as_str()),
        Of::Key(name) => ("lanes.key = (SELECT id FROM keys WHERE name = ?1)", name.as_str()),
    };
    // Of each lane no more than are asked for: what waits behind them is neither read nor sorted.
    let mut statement =
        db.prepare_cached(&format!("SELECT id FROM lanes WHERE {condition} AND state <> 0"))?;
    let lanes = statement.query_map([name], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let sql = "SELECT place, id FROM tasks WHERE lane = ?1 AND place IS NOT NULL ORDER BY place, id LIMIT ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut first: Vec<(i64, i64)> = Vec::new();
    for lane in lanes {
        let found = statement.query_map(params![lane, most], |row| Ok((row.get(0)?, row.get(1)?)))?;
        first.extend(found.collect::<Result<Vec<_>, _>>()?);
        if first.len() > MOST_SORTED.max(2 * most as usize) {
            first.sort_unstable();
            first.truncate(most as usize);
        }
    }
    first.sort_unstable();
    first.truncate(most as usize);
    let mut ids: Vec<i64> = first.into_iter().map(|(_, id)| id).collect();
    let left = most - ids.len() as u32;
    if left > 0 {
        let sql = format!(
            "SELECT tasks.id FROM tasks JOIN lanes ON lanes.id = tasks.lane WHERE {condition} AND place IS NULL
                ORDER BY due_at, tasks.id LIMIT ?2"
        );
        let mut statement = db.prepare_cached(&sql)?;
        let delayed = statement.query_map(params![name, left], |row| row.get(0))?;
        ids.extend(delayed.collect::<Result<Vec<i64>, _>>()?);
    }
    let looks = ids.into_iter().map(|id| look::task(db, TaskId(id), now));
    looks.filter_map(Result::transpose).collect()
}

/// Where a task that nobody holds stands.
pub(super) fn standing(db: &Connection, id: TaskId, now: Tick) -> Result<Option<Standing>, Fault> {
    let sql = "SELECT lanes.id, lanes.key, lanes.limits,
            keys.in_use, keys.paused, keys.pinned, keys.sent, keys.latest, keys.rates,
            tasks.place, tasks.weight, tasks.good_until, lanes.queue, lanes.priority
        FROM tasks JOIN lanes ON lanes.id = tasks.lane LEFT JOIN keys ON keys.id = lanes.key WHERE tasks.id = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let key_id: i64 = row.get(1)?;
    let weight: u32 = row.get(10)?;
    let limits = row.get_ref(2)?.as_str().unwrap_or_default();
    let under = match key_id {
        0 => Under::default(),
        id => read_key(id, row)?.holding(limits, weight, now),
    };
    let place = row.get::<_, Option<i64>>(9)?.unwrap_or(i64::MAX);
    let count = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> Result<u64, Fault> {
        let count: i64 = db.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(count.unsigned_abs())
    };
    let in_key =
        "SELECT count(*) FROM lanes JOIN tasks ON tasks.lane = lanes.id WHERE lanes.key = ?1 AND place < ?2";
    let in_queue = "SELECT count(*) FROM (SELECT 1 FROM lanes JOIN tasks ON tasks.lane = lanes.id
        WHERE lanes.queue = ?1 AND (lanes.priority < ?2 AND place IS NOT NULL OR lanes.priority = ?2 AND place < ?3) LIMIT ?4)";
    Ok(Some(Standing {
        now,
        weight,
        good_until: row.get::<_, Option<i64>>(11)?.map(tick),
        under,
        ahead_in_key: if key_id == 0 { 0 } else { count(in_key, &[&key_id, &place])? },
        ahead_in_queue: count(
            in_queue,
            &[&row.get::<_, i64>(12)?, &row.get::<_, i64>(13)?, &place, &MOST_COUNTED],
        )?,
        ahead_elsewhere: elsewhere(db, row.get(12)?)?,
    }))
}

/// What is ready in queues that are served before this one.
fn elsewhere(db: &Connection, queue: i64) -> Result<Vec<Elsewhere>, Fault> {
    let sql = "SELECT name, (SELECT count(*) FROM (SELECT 1 FROM lanes JOIN tasks ON tasks.lane = lanes.id
            WHERE lanes.queue = queues.id AND lanes.state = ?2 AND place IS NOT NULL LIMIT ?3)) AS ready
        FROM queues WHERE NOT paused AND priority < (SELECT priority FROM queues WHERE id = ?1) AND ready > 0";
    let mut statement = db.prepare_cached(sql)?;
    let found = statement.query_map(params![queue, READY, MOST_COUNTED], |row| {
        Ok(Elsewhere { queue: row.get(0)?, ready: row.get::<_, i64>(1)?.unsigned_abs() })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The workers whose lease lasts.
pub(super) fn workers(db: &Connection, now: Tick) -> Result<Vec<WorkerLook>, Fault> {
    let sql = "SELECT id, name, slots, queues, lease_until FROM workers WHERE lease_until > ?1 ORDER BY id";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([moment(now)])?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let (mut in_use, mut ahead) = (0, 0);
        let mut leases =
            db.prepare_cached("SELECT id, ahead_until IS NOT NULL FROM leases WHERE worker = ?1")?;
        for lease in leases.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))? {
            let (lease, is_ahead) = lease?;
            *if is_ahead { &mut ahead } else { &mut in_use } += leases::held(db, lease)?.len() as u32;
        }
        let mut queues = Vec::new();
        for queue in row.get::<_, String>(3)?.split(',').filter(|queue| !queue.is_empty()) {
            let mut find = db.prepare_cached("SELECT name FROM queues WHERE id = ?1")?;
            queues.extend(find.query_row([queue], |row| row.get::<_, String>(0)).optional()?);
        }
        workers.push(WorkerLook {
            id: WorkerId(id),
            name: row.get(1)?,
            slots: row.get(2)?,
            in_use,
            ahead,
            queues,
            lease_until: tick(row.get(4)?),
            lease_left: tick(row.get(4)?).since(now),
        });
    }
    Ok(workers)
}
