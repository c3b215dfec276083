//! The rows of what workers hold.
//!
//! Owns the packed form of a claim's tasks. A lease row is all there is of a claimed task, so it is also where everything
//! is counted from.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use flowgate_core::Tick;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{error::Fault, lanes::moment, lanes::tick};
use crate::{
    record::{Reader, put},
    store::{Claimed, Place, WorkerId},
    task::TaskId,
};

/// A lease without its tasks.
pub(super) struct Lease {
    pub(super) worker: i64,
    pub(super) count: u32,
    pub(super) done: Vec<i64>,
    /// Whether it was claimed ahead and has not started.
    pub(super) is_ahead: bool,
}

/// What a lease says of one task, except for its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub(super) id: i64,
    pub(super) lane: i64,
    pub(super) attempt: u32,
    pub(super) weight: u32,
    pub(super) good_until: Option<Tick>,
    length: usize,
}

/// Writes down what a worker took, and gives the fencing token to each.
pub(super) fn write(
    db: &Connection,
    worker: WorkerId,
    now: Tick,
    tasks: &mut [Claimed],
) -> Result<(), Fault> {
    let ids = || tasks.iter().map(|task| task.id.0);
    let (Some(lowest), Some(highest)) = (ids().min(), ids().max()) else { return Ok(()) };
    let sql =
        "INSERT INTO leases (worker, since, count, lowest, highest, done) VALUES (?1, ?2, ?3, ?4, ?5, x'')";
    let values = params![worker.0, moment(now), tasks.len() as i64, lowest, highest];
    let lease = db.prepare_cached(sql)?.insert(values)?;
    let mut facts = Vec::with_capacity(tasks.len() * 12);
    let mut records = Vec::with_capacity(tasks.iter().map(|task| task.record.len()).sum());
    for task in tasks.iter_mut() {
        task.lease = lease;
        put(&mut facts, task.id.0 as u64);
        put(&mut facts, task.place.lane as u64);
        put(&mut facts, u64::from(task.attempt));
        put(&mut facts, u64::from(task.weight));
        put(&mut facts, task.good_until.map_or(0, |until| until.as_nanos().max(1)));
        put(&mut facts, task.record.len() as u64);
        records.extend_from_slice(&task.record);
    }
    let sql = "INSERT INTO held (lease, facts, records) VALUES (?1, ?2, ?3)";
    db.prepare_cached(sql)?.execute(params![lease, facts, records])?;
    Ok(())
}

/// What is left of a lease, if anything.
pub(super) fn find(db: &Connection, lease: i64) -> Result<Option<Lease>, Fault> {
    let sql = "SELECT worker, count, done, ahead_until IS NOT NULL FROM leases WHERE id = ?1";
    let row = db.prepare_cached(sql)?.query_row([lease], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, u32>(1)?, row.get::<_, Vec<u8>>(2)?, row.get(3)?))
    });
    let Some((worker, count, done, is_ahead)) = row.optional()? else { return Ok(None) };
    Ok(Some(Lease { worker, count, done: unpack_done(&done)?, is_ahead }))
}

/// More of a lease's tasks have ended. The last one ends the lease.
pub(super) fn shrink(db: &Connection, lease: i64, count: u32, done: &[i64]) -> Result<(), Fault> {
    if done.len() >= count as usize {
        db.prepare_cached("DELETE FROM held WHERE lease = ?1")?.execute([lease])?;
        db.prepare_cached("DELETE FROM leases WHERE id = ?1")?.execute([lease])?;
        return Ok(());
    }
    let mut bytes = Vec::with_capacity(done.len() * 5);
    for &id in done {
        put(&mut bytes, id as u64);
    }
    db.prepare_cached("UPDATE leases SET done = ?2 WHERE id = ?1")?.execute(params![lease, bytes])?;
    Ok(())
}

/// The tasks that a lease still holds.
pub(super) fn held(db: &Connection, lease: i64) -> Result<Vec<Claimed>, Fault> {
    let sql = "SELECT facts, records, done FROM held JOIN leases ON leases.id = lease WHERE lease = ?1";
    let row = db.prepare_cached(sql)?.query_row([lease], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(2)?))
    });
    let Some((facts, records, done)) = row.optional()? else { return Ok(Vec::new()) };
    let done = unpack_done(&done)?;
    let mut records = Reader::new(&records);
    let mut tasks = Vec::new();
    for fact in unpack(&facts)? {
        let record = records.take(fact.length)?;
        if done.contains(&fact.id) {
            continue;
        }
        let Fact { id, lane, attempt, weight, good_until, .. } = fact;
        let place = place(db, lane)?;
        let record = Bytes::copy_from_slice(record);
        tasks.push(Claimed { id: TaskId(id), lease, attempt, weight, good_until, record, place });
    }
    Ok(tasks)
}

/// The lease that holds this task, if one does: its number, its worker and since when.
pub(super) fn holder(db: &Connection, task: TaskId) -> Result<Option<(i64, WorkerId, Tick)>, Fault> {
    let sql = "SELECT id, worker, since, facts, done FROM leases JOIN held ON lease = id
        WHERE ?1 BETWEEN lowest AND highest";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([task.0])?;
    while let Some(row) = rows.next()? {
        let is_in =
            unpack(row.get_ref(3)?.as_blob().unwrap_or_default())?.iter().any(|fact| fact.id == task.0);
        if is_in && !unpack_done(row.get_ref(4)?.as_blob().unwrap_or_default())?.contains(&task.0) {
            return Ok(Some((row.get(0)?, WorkerId(row.get(1)?), tick(row.get(2)?))));
        }
    }
    Ok(None)
}

/// How many tasks are held in all.
pub(super) fn count(db: &Connection) -> Result<u32, Fault> {
    Ok(recount(db)?.values().map(|(count, _)| count).sum())
}

/// How many tasks of each lane are held and not merely claimed ahead, and their weight: counted anew.
pub(super) fn recount(db: &Connection) -> Result<HashMap<i64, (u32, u32)>, Fault> {
    let mut counts = HashMap::new();
    let mut statement = db
        .prepare_cached("SELECT facts, done FROM leases JOIN held ON lease = id WHERE ahead_until IS NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let done = unpack_done(row.get_ref(1)?.as_blob().unwrap_or_default())?;
        for fact in unpack(row.get_ref(0)?.as_blob().unwrap_or_default())? {
            if !done.contains(&fact.id) {
                let (count, weight): &mut (u32, u32) = counts.entry(fact.lane).or_default();
                *count += 1;
                *weight += fact.weight;
            }
        }
    }
    Ok(counts)
}

/// How many tasks of one queue are held: counted anew.
pub(super) fn recount_queue(db: &Connection, queue: i64) -> Result<u32, Fault> {
    let mut sum = 0;
    for (lane, (count, _)) in recount(db)? {
        if place(db, lane)?.queue == queue {
            sum += count;
        }
    }
    Ok(sum)
}

/// The queues of which a worker holds something that it did not merely claim ahead.
pub(super) fn queues_of(db: &Connection, worker: WorkerId) -> Result<HashSet<i64>, Fault> {
    let sql = "SELECT facts FROM leases JOIN held ON lease = id WHERE worker = ?1 AND ahead_until IS NULL";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([worker.0])?;
    let mut lanes = HashSet::new();
    while let Some(row) = rows.next()? {
        lanes.extend(unpack(row.get_ref(0)?.as_blob().unwrap_or_default())?.iter().map(|fact| fact.lane));
    }
    lanes.into_iter().map(|lane| Ok(place(db, lane)?.queue)).collect()
}

/// What a worker has of a key in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Riding {
    /// How many run, and how many slots they hold.
    pub(super) count: u32,
    pub(super) weight: u32,
    /// How many were claimed ahead and have not started: by this worker, and by others.
    pub(super) wait: u32,
    pub(super) others_wait: u32,
}

/// What a worker has of each key and queue of which it runs something.
pub(super) fn keys_of(db: &Connection, worker: WorkerId) -> Result<BTreeMap<(i64, i64), Riding>, Fault> {
    let sql = "SELECT worker = ?1, ahead_until IS NOT NULL, facts, done FROM leases JOIN held ON lease = id
        WHERE worker = ?1 OR ahead_until IS NOT NULL";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([worker.0])?;
    let mut riding: BTreeMap<(i64, i64), Riding> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (is_mine, is_ahead): (bool, bool) = (row.get(0)?, row.get(1)?);
        let done = unpack_done(row.get_ref(3)?.as_blob().unwrap_or_default())?;
        let facts = unpack(row.get_ref(2)?.as_blob().unwrap_or_default())?;
        for fact in facts.iter().filter(|fact| !done.contains(&fact.id)) {
            let place = place(db, fact.lane)?;
            let Some(key) = place.key else { continue };
            let riding = riding.entry((key, place.queue)).or_default();
            match (is_mine, is_ahead) {
                (true, false) => {
                    riding.count += 1;
                    riding.weight += fact.weight;
                }
                (true, true) => riding.wait += 1,
                (false, _) => riding.others_wait += 1,
            }
        }
    }
    riding.retain(|_, riding| riding.count > 0);
    Ok(riding)
}

/// The lanes of all that is held.
pub(super) fn lanes(db: &Connection) -> Result<HashSet<i64>, Fault> {
    let mut statement = db.prepare_cached("SELECT facts FROM held")?;
    let mut rows = statement.query([])?;
    let mut lanes = HashSet::new();
    while let Some(row) = rows.next()? {
        lanes.extend(unpack(row.get_ref(0)?.as_blob().unwrap_or_default())?.iter().map(|fact| fact.lane));
    }
    Ok(lanes)
}

/// The keys of which something was claimed ahead and has not started.
pub(super) fn keys_ahead(db: &Connection) -> Result<HashSet<i64>, Fault> {
    let sql = "SELECT facts FROM leases JOIN held ON lease = id WHERE ahead_until IS NOT NULL";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut keys = HashSet::new();
    while let Some(row) = rows.next()? {
        for fact in unpack(row.get_ref(0)?.as_blob().unwrap_or_default())? {
            keys.extend(place(db, fact.lane)?.key);
        }
    }
    Ok(keys)
}

/// What a lane belongs to.
pub(super) fn place(db: &Connection, lane: i64) -> Result<Place, Fault> {
    let mut statement = db.prepare_cached("SELECT queue, key FROM lanes WHERE id = ?1")?;
    let place = statement.query_row([lane], |row| {
        let key = Some(row.get::<_, i64>(1)?).filter(|key| *key != 0);
        Ok(Place { lane, queue: row.get(0)?, key })
    })?;
    Ok(place)
}

fn unpack(facts: &[u8]) -> Result<Vec<Fact>, Fault> {
    let mut reader = Reader::new(facts);
    let mut unpacked = Vec::new();
    while !reader.is_at_end() {
        unpacked.push(Fact {
            id: reader.number()? as i64,
            lane: reader.number()? as i64,
            attempt: reader.small()?,
            weight: reader.small()?,
            good_until: Some(reader.number()?).filter(|nanos| *nanos != 0).map(Tick::from_nanos),
            length: reader.small()? as usize,
        });
    }
    Ok(unpacked)
}

fn unpack_done(done: &[u8]) -> Result<Vec<i64>, Fault> {
    let mut reader = Reader::new(done);
    let mut ids = Vec::new();
    while !reader.is_at_end() {
        ids.push(reader.number()? as i64);
    }
    Ok(ids)
}
