//! How held tasks end.
//!
//! Owns the fence (a worker that lost the lease changes nothing), where a task goes after each end, and
//! giving back what it held of its key, its queue and the cluster.

use std::collections::{BTreeMap, HashSet};

use flowgate_core::Tick;
use rusqlite::{Connection, params};

use super::{
    error::Fault,
    lanes,
    lanes::moment,
    leases,
    send::{Line, Row, put},
    threads::Hand,
};
use crate::{
    record::Rest,
    store::{Claimed, End, Settle, Wake, WorkerId},
    task::TaskId,
};

/// Said of a task whose worker went away during its last attempt.
const WORKER_LOST: &str = "its worker was lost while it ran";

/// What came of a settle.
pub(super) struct Settled {
    /// Those that the worker did not hold any more.
    pub(super) lost: Vec<TaskId>,
    /// How many came back of each queue.
    pub(super) queues: BTreeMap<i64, u32>,
    /// What came back of keys, which is yet to be written.
    pub(super) keys: Back,
}

/// Ends these tasks.
pub(super) fn settle(hand: &mut Hand<'_>, worker: WorkerId, settles: Vec<Settle>) -> Result<Settled, Fault> {
    let mut by_lease: BTreeMap<i64, Vec<Settle>> = BTreeMap::new();
    for settle in settles {
        by_lease.entry(settle.task.lease).or_default().push(settle);
    }
    let mut lost = Vec::new();
    let mut freed = Freed::default();
    for (lease, settles) in by_lease {
        let Some(row) = leases::find(hand.db, lease)?.filter(|row| row.worker == worker.0) else {
            lost.extend(settles.iter().map(|settle| settle.task.id));
            continue;
        };
        let mut done = row.done;
        let mut seen: HashSet<i64> = done.iter().copied().collect();
        for Settle { task, end } in settles {
            if !seen.insert(task.id.0) {
                lost.push(task.id);
                continue;
            }
            done.push(task.id.0);
            if !row.is_ahead {
                freed.add(&task);
            }
            finish(hand, &task, end)?;
        }
        leases::shrink(hand.db, lease, row.count, &done)?;
    }
    let queues = freed.queues.clone();
    Ok(Settled { lost, queues, keys: freed.give_back(hand)? })
}

/// Takes back all that a worker held, and forgets the worker. Gives how many tasks that were.
pub(super) fn take_back(hand: &mut Hand<'_>, worker: i64) -> Result<u32, Fault> {
    let sql = "SELECT id, count, ahead_until IS NOT NULL FROM leases WHERE worker = ?1";
    let mut statement = hand.db.prepare_cached(sql)?;
    let found = statement.query_map([worker], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let found: Vec<(i64, u32, bool)> = found.collect::<Result<_, _>>()?;
    let mut freed = Freed::default();
    let mut given_up = 0;
    for (lease, count, is_ahead) in found {
        if is_ahead {
            given_up += give_up(hand, lease)?;
            continue;
        }
        for task in leases::held(hand.db, lease)? {
            freed.add(&task);
            finish(hand, &task, End::Lost)?;
        }
        leases::shrink(hand.db, lease, count, &vec![0; count as usize])?;
    }
    hand.db.prepare_cached("DELETE FROM workers WHERE id = ?1")?.execute([worker])?;
    let count = freed.count + given_up;
    write_back(hand.db, &freed.give_back(hand)?)?;
    Ok(count)
}

/// What was claimed ahead and has not started, as far as anybody can know, goes back. Gives how many tasks that were.
pub(super) fn give_up(hand: &mut Hand<'_>, lease: i64) -> Result<u32, Fault> {
    let tasks = leases::held(hand.db, lease)?;
    for task in &tasks {
        finish(hand, task, End::Returned)?;
    }
    let count = tasks.len() as u32;
    leases::shrink(hand.db, lease, count, &vec![0; tasks.len()])?;
    Ok(count)
}

/// Gives back what a worker holds under leases that it does not know. Gives how many tasks that were.
pub(super) fn reconcile(hand: &mut Hand<'_>, worker: WorkerId, known: &[i64]) -> Result<u32, Fault> {
    let mut statement = hand.db.prepare_cached("SELECT id FROM leases WHERE worker = ?1")?;
    let found = statement.query_map([worker.0], |row| row.get(0))?;
    let found: Vec<i64> = found.collect::<Result<_, _>>()?;
    let mut returned = Vec::new();
    for lease in found.into_iter().filter(|lease| !known.contains(lease)) {
        let settle = |task| Settle { task, end: End::Returned };
        returned.extend(leases::held(hand.db, lease)?.into_iter().map(settle));
    }
    let count = returned.len() as u32;
    let settled = settle(hand, worker, returned)?;
    write_back(hand.db, &settled.keys)?;
    Ok(count)
}

/// What came back of each key.
pub(super) type Back = BTreeMap<i64, u32>;

/// What came back, to be written once for each row.
#[derive(Default)]
struct Freed {
    count: u32,
    queues: BTreeMap<i64, u32>,
    keys: Back,
}

impl Freed {
    fn add(&mut self, task: &Claimed) {
        self.count += 1;
        *self.queues.entry(task.place.queue).or_default() += 1;
        if let Some(key) = task.place.key {
            *self.keys.entry(key).or_default() += task.weight;
        }
    }

    /// Gives back all but the slots of keys, whose lanes are looked at again.
    fn give_back(self, hand: &mut Hand<'_>) -> Result<Back, Fault> {
        if self.count == 0 {
            return Ok(self.keys);
        }
        let sql = "UPDATE cluster SET in_use = max(0, in_use - ?1) WHERE cap IS NOT NULL";
        hand.db.prepare_cached(sql)?.execute([self.count])?;
        for (queue, count) in self.queues {
            let sql = "UPDATE queues SET in_use = max(0, in_use - ?2) WHERE id = ?1 AND max IS NOT NULL";
            hand.db.prepare_cached(sql)?.execute(params![queue, count])?;
        }
        for &key in self.keys.keys() {
            lanes::release(hand.db, key)?;
        }
        Ok(self.keys)
    }
}

/// Gives back the slots of these keys.
pub(super) fn write_back(db: &Connection, back: &Back) -> Result<(), Fault> {
    for (key, weight) in back {
        let sql = "UPDATE keys SET in_use = max(0, in_use - ?2) WHERE id = ?1";
        db.prepare_cached(sql)?.execute(params![key, weight])?;
    }
    Ok(())
}

/// Where a task goes.
fn finish(hand: &mut Hand<'_>, task: &Claimed, end: End) -> Result<(), Fault> {
    // Its number is older than every place given since: it comes back before them.
    let front = Line::Place(task.id.0);
    match end {
        End::Done { result } => {
            if let Some(keep) = Rest::of(&task.record).keep {
                keep_result(hand.db, task, hand.now.after(keep), &result)?;
                hand.wakes.push(Wake::Ended(task.id));
            }
            Ok(())
        }
        End::Failed { error, retry_after } => {
            if is_last(task) {
                return bury(hand, task, "failed", &error);
            }
            let line = if retry_after.is_zero() { front } else { Line::Until(hand.now.after(retry_after)) };
            again(hand, task, line, task.attempt)
        }
        End::Dead { error } => bury(hand, task, "failed", &error),
        End::Cancelled => bury(hand, task, "cancelled", ""),
        End::Returned => again(hand, task, front, task.attempt - 1),
        End::Lost if is_last(task) => bury(hand, task, "failed", WORKER_LOST),
        End::Lost => again(hand, task, front, task.attempt),
    }
}

fn is_last(task: &Claimed) -> bool {
    task.attempt >= Rest::of(&task.record).max_attempts
}

/// Back to its line; one that was cancelled while it was held, and whose worker did not hear of it in time, does not run again.
fn again(hand: &mut Hand<'_>, task: &Claimed, line: Line, attempt: u32) -> Result<(), Fault> {
    let Claimed { id, weight, good_until, record, place, .. } = task;
    let (id, lane) = (id.0, place.lane);
    if hand.db.prepare_cached("SELECT 1 FROM cancels WHERE task = ?1")?.exists([id])? {
        return bury_row(hand, (id, lane, attempt, *weight), record, ("cancelled", ""));
    }
    put(hand.db, &Row { id, lane, line, attempt, weight: *weight, good_until: *good_until, record })?;
    match line {
        Line::Place(_) => {
            lanes::fill(hand.db, lane)?;
            hand.wake();
        }
        Line::Until(_) => hand.wakes.push(Wake::Due),
    }
    Ok(())
}

fn keep_result(db: &Connection, task: &Claimed, until: Tick, result: &[u8]) -> Result<(), Fault> {
    let sql = "INSERT INTO results (id, queue, key, priority, attempt, until, result)
        SELECT ?2, queues.name, keys.name, lanes.priority, ?3, ?4, ?5
        FROM lanes JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key
        WHERE lanes.id = ?1";
    let values = params![task.place.lane, task.id.0, task.attempt, moment(until), result];
    db.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn bury(hand: &mut Hand<'_>, task: &Claimed, reason: &str, error: &str) -> Result<(), Fault> {
    let Claimed { id, attempt, weight, record, place, .. } = task;
    bury_row(hand, (id.0, place.lane, *attempt, *weight), record, (reason, error))
}

/// Puts a task on the dead list: (its number, its lane, how often it started, its weight), and why.
pub(super) fn bury_row(
    hand: &mut Hand<'_>,
    (id, lane, attempt, weight): (i64, i64, u32, u32),
    record: &[u8],
    (reason, error): (&str, &str),
) -> Result<(), Fault> {
    let sql =
        "INSERT INTO dead (id, queue, key, priority, limits, attempt, weight, reason, error, at, record)
        SELECT ?2, queues.name, keys.name, lanes.priority, lanes.limits, ?3, ?4, ?5, ?6, ?7, ?8
        FROM lanes JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key
        WHERE lanes.id = ?1";
    let at = moment(hand.now);
    hand.db.prepare_cached(sql)?.execute(params![lane, id, attempt, weight, reason, error, at, record])?;
    tell_end(hand, TaskId(id), record);
    Ok(())
}

/// Tells whoever waits for the result of a task that it has ended.
pub(super) fn tell_end(hand: &mut Hand<'_>, id: TaskId, record: &[u8]) {
    if Rest::of(record).keep.is_some() {
        hand.wakes.push(Wake::Ended(id));
    }
}
