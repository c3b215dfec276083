//! Counting again what is counted, and comparing. Changes nothing.

use std::collections::HashMap;

use flowgate_core::Tick;
use rusqlite::{Connection, params};

use super::{error::Fault, lanes::moment, leases};

/// What does not agree, in words.
pub(super) fn audit(db: &Connection, now: Tick) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    let (mut keys, mut queues, mut all) = (HashMap::new(), HashMap::new(), 0);
    for (lane, (count, weight)) in leases::recount(db)? {
        let Ok(place) = leases::place(db, lane) else {
            found.push(format!("lane {lane} is gone, and {count} of its tasks are held"));
            continue;
        };
        all += count;
        *queues.entry(place.queue).or_insert(0) += count;
        if let Some(key) = place.key {
            *keys.entry(key).or_insert(0) += weight;
        }
    }
    let cluster = "SELECT 1, 'the cluster', in_use FROM cluster WHERE cap IS NOT NULL";
    compare(db, cluster, &HashMap::from([(1, all)]), &mut found)?;
    let capped = "SELECT id, 'queue ' || name, in_use FROM queues WHERE max IS NOT NULL";
    compare(db, capped, &queues, &mut found)?;
    compare(db, "SELECT id, 'key ' || name, in_use FROM keys", &keys, &mut found)?;
    for key in keys.keys() {
        if !db.prepare_cached("SELECT 1 FROM keys WHERE id = ?1")?.exists([key])? {
            found.push(format!("key {key} is gone, and tasks of it are held"));
        }
    }
    strays(db, now, &mut found)?;
    Ok(found)
}

/// Stored counts, by row, against those counted.
fn compare(
    db: &Connection,
    sql: &str,
    counted: &HashMap<i64, u32>,
    found: &mut Vec<String>,
) -> Result<(), Fault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, name, stored): (i64, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let counted = counted.get(&id).copied().unwrap_or(0);
        if stored != i64::from(counted) {
            found.push(format!("{name} says {stored} in use, and {counted} are held"));
        }
    }
    Ok(())
}

/// Rows that nothing would ever come back to.
fn strays(db: &Connection, now: Tick, found: &mut Vec<String>) -> Result<(), Fault> {
    let questions = [
        "SELECT 'task ' || id || ' waits in a lane that is gone' FROM tasks
            WHERE ?1 = ?1 AND lane NOT IN (SELECT id FROM lanes)",
        "SELECT 'task ' || id || ' neither stands in line nor falls due' FROM tasks
            WHERE ?1 = ?1 AND (place IS NULL) = (due_at IS NULL)",
        "SELECT 'lane ' || id || ' says that nothing stands in its line' FROM lanes
            WHERE state = 0 AND EXISTS (SELECT 1 FROM tasks
                WHERE lane = lanes.id AND place IS NOT NULL AND (good_until IS NULL OR good_until > ?1))",
        "SELECT 'lane ' || lanes.id || ' is held by its key, which holds nothing' FROM lanes
            LEFT JOIN keys ON keys.id = lanes.key
            WHERE ?1 = ?1 AND state = 2 AND coalesce(keys.in_use = 0 AND NOT keys.paused, true)
                AND (SELECT weight FROM tasks WHERE lane = lanes.id AND place IS NOT NULL ORDER BY place LIMIT 1) = 1",
        "SELECT 'lane ' || id || ' rests until no moment' FROM lanes WHERE ?1 = ?1 AND state = 3 AND wake_at IS NULL",
        "SELECT 'lease ' || id || ' is of a worker that is gone' FROM leases
            WHERE ?1 = ?1 AND worker NOT IN (SELECT id FROM workers)",
        "SELECT 'lease ' || id || ' has no tasks' FROM leases WHERE ?1 = ?1 AND id NOT IN (SELECT lease FROM held)",
    ];
    for question in questions {
        let mut statement = db.prepare_cached(question)?;
        let answers = statement.query_map(params![moment(now)], |row| row.get(0))?;
        for answer in answers {
            found.push(answer?);
        }
    }
    Ok(())
}
