//! Finding the rows of queues, keys and lanes, and moving lanes between their states.
//!
//! Owns the numbers of the states, and the one sequence of tasks and places.

use flowgate_core::Tick;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;

/// Nothing in line.
pub(super) const IDLE: i64 = 0;
/// To be looked at.
pub(super) const READY: i64 = 1;
/// Held by its key.
pub(super) const HELD: i64 = 2;
/// Held by a rate, until its `wake_at`.
pub(super) const RESTING: i64 = 3;

/// A moment as it is stored.
pub(super) fn moment(tick: Tick) -> i64 {
    i64::try_from(tick.as_nanos()).unwrap_or(i64::MAX)
}

/// A stored moment.
pub(super) fn tick(moment: i64) -> Tick {
    Tick::from_nanos(u64::try_from(moment).unwrap_or(0))
}

/// Takes `count` numbers and gives the one before them. There is one writer, so it may look first: what an update
/// returns goes by a table of its own, which costs more than both.
pub(super) fn take_numbers(db: &Connection, count: u32) -> Result<i64, Fault> {
    let last = db.prepare_cached("SELECT last FROM numbers")?.query_row([], |row| row.get(0))?;
    db.prepare_cached("UPDATE numbers SET last = last + ?1")?.execute([count])?;
    Ok(last)
}

/// The row of a queue, which is made if it is not known.
pub(super) fn queue(db: &Connection, name: &str) -> Result<i64, Fault> {
    let find = "SELECT id FROM queues WHERE name = ?1";
    if let Some(id) = db.prepare_cached(find)?.query_row([name], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    Ok(db.prepare_cached("INSERT INTO queues (name) VALUES (?1)")?.insert([name])?)
}

/// The row of a key, which is made if it is not known.
pub(super) fn key(db: &Connection, name: &str) -> Result<i64, Fault> {
    match key_sent(db, name)? {
        Some((id, _)) => Ok(id),
        None => make_key(db, name, ""),
    }
}

/// The row of a key and the newest limits sent with it, if it is known.
pub(super) fn key_sent(db: &Connection, name: &str) -> Result<Option<(i64, String)>, Fault> {
    let find = "SELECT id, sent FROM keys WHERE name = ?1";
    Ok(db.prepare_cached(find)?.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// The row of a key that is not known: these limits are the first sent with it. One row by its values, for which SQLite keeps no
/// copy of the pages it writes; for rows of a `SELECT` it does.
pub(super) fn make_key(db: &Connection, name: &str, limits: &str) -> Result<i64, Fault> {
    let make = "INSERT INTO keys (name, sent, latest) VALUES (?1, ?2, (SELECT latest FROM cluster))";
    Ok(db.prepare_cached(make)?.insert([name, limits])?)
}

/// The row of a lane, which is made if it is not known. Key 0 is none.
pub(super) fn lane(db: &Connection, queue: i64, key: i64, priority: i16, limits: &str) -> Result<i64, Fault> {
    let find = "SELECT id FROM lanes WHERE key = ?1 AND queue = ?2 AND priority = ?3 AND limits = ?4";
    let values = params![key, queue, priority, limits];
    if let Some(id) = db.prepare_cached(find)?.query_row(values, |row| row.get(0)).optional()? {
        return Ok(id);
    }
    make_lane(db, (queue, key), (priority, limits), IDLE)
}

/// The row of a lane that is not known, in this state.
pub(super) fn make_lane(
    db: &Connection,
    (queue, key): (i64, i64),
    (priority, limits): (i16, &str),
    state: i64,
) -> Result<i64, Fault> {
    let make = "INSERT INTO lanes (key, queue, priority, limits, state) VALUES (?1, ?2, ?3, ?4, ?5)";
    Ok(db.prepare_cached(make)?.insert(params![key, queue, priority, limits, state])?)
}

/// Something stands in this lane's line.
pub(super) fn fill(db: &Connection, lane: i64) -> Result<(), Fault> {
    db.prepare_cached("UPDATE lanes SET state = 1 WHERE id = ?1 AND state = 0")?.execute([lane])?;
    Ok(())
}

/// The head of this lane left: if it was too heavy, the next one may not be.
pub(super) fn look_again(db: &Connection, lane: i64) -> Result<(), Fault> {
    db.prepare_cached("UPDATE lanes SET state = 1 WHERE id = ?1 AND state = 2")?.execute([lane])?;
    Ok(())
}

/// A lane's new state.
pub(super) fn set(db: &Connection, lane: i64, state: i64, wake_at: Option<Tick>) -> Result<(), Fault> {
    let sql = "UPDATE lanes SET state = ?2, wake_at = ?3 WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![lane, state, wake_at.map(moment)])?;
    Ok(())
}

/// Slots of a key came back: the lanes it held are looked at again. Mostly it held none, and to see that costs less
/// than an update that finds nothing.
pub(super) fn release(db: &Connection, key: i64) -> Result<(), Fault> {
    if db.prepare_cached("SELECT 1 FROM lanes WHERE key = ?1 AND state = 2")?.exists([key])? {
        db.prepare_cached("UPDATE lanes SET state = 1 WHERE key = ?1 AND state = 2")?.execute([key])?;
    }
    Ok(())
}

/// The limits of a key changed: all of its lanes are looked at again.
pub(super) fn release_all(db: &Connection, key: i64) -> Result<(), Fault> {
    let sql = "UPDATE lanes SET state = 1, wake_at = NULL WHERE key = ?1 AND state IN (2, 3)";
    db.prepare_cached(sql)?.execute([key])?;
    Ok(())
}

/// Lanes whose rate allows more by now.
pub(super) fn wake_due(db: &Connection, now: Tick) -> Result<usize, Fault> {
    let sql = "UPDATE lanes SET state = 1, wake_at = NULL WHERE state = 3 AND wake_at <= ?1";
    Ok(db.prepare_cached(sql)?.execute([moment(now)])?)
}

/// Wakes all that wait for a rate or a rest until after this moment: what holds them is looked at anew.
pub(super) fn wake_after(db: &Connection, moment: i64) -> Result<usize, Fault> {
    let sql = "UPDATE lanes SET state = 1, wake_at = NULL WHERE state = 3 AND wake_at > ?1";
    Ok(db.prepare_cached(sql)?.execute([moment])?)
}
