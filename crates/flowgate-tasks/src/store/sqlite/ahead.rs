//! What workers claim ahead, under soft caps: one task to a lease, which counts in no cap until the task starts.

use std::collections::BTreeMap;

use rusqlite::params;

use super::{
    claim,
    error::Fault,
    lanes::{self, moment},
    leases, settle,
    threads::Hand,
};
use crate::{
    plan::{Candidate, Counter, Grant, Scene},
    store::{Ahead, Claimed, StoreError, WorkerId},
    task::TaskId,
};

/// No claim ahead looks at more lanes than these.
const MOST_LANES: u32 = 16;

/// Of the lanes without a key, in the order in which they are served: those of queues of which the worker holds something, and that
/// are not beyond a cap that was lowered.
pub(super) fn take(hand: &mut Hand<'_>, worker: WorkerId, ahead: Ahead) -> Result<Vec<Claimed>, Fault> {
    let riding = leases::queues_of(hand.db, worker)?;
    let sql = "SELECT lanes.id, lanes.queue, lanes.priority FROM lanes JOIN queues ON queues.id = lanes.queue
        WHERE state = 1 AND key = 0 AND NOT paused AND (max IS NULL OR in_use <= max)
        ORDER BY queues.priority, lanes.priority, lanes.id";
    let mut statement = hand.db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let queue: i64 = row.get(1)?;
        if riding.contains(&queue) && found.len() < MOST_LANES as usize {
            found.push(Candidate { id: row.get(0)?, queue, key: None, priority: row.get(2)?, own: None });
        }
    }
    drop(rows);
    let none = Counter::default();
    let scene =
        Scene { now: hand.now, budget: 0, cluster: none, queues: Vec::new(), keys: Vec::new(), lanes: found };
    let mut taken = Vec::new();
    for lane in 0..scene.lanes.len() {
        let count = ahead.most - taken.len() as u32;
        if count == 0 {
            break;
        }
        let mut tasks = claim::take(hand, &scene, Grant { lane, count, room: u32::MAX })?;
        if let Some(state) = tasks.state {
            lanes::set(hand.db, scene.lanes[lane].id, state, None)?;
        }
        taken.append(&mut tasks.tasks);
    }
    for task in &mut taken {
        leases::write(hand.db, worker, hand.now, std::slice::from_mut(task))?;
        let until = moment(hand.now.after(ahead.lease));
        let sql = "UPDATE leases SET ahead_until = ?2 WHERE id = ?1";
        hand.db.prepare_cached(sql)?.execute(params![task.lease, until])?;
    }
    Ok(taken)
}

/// What was claimed ahead counts from its start on. Gives what was lost before, and how many start of each queue.
pub(super) fn start(
    hand: &mut Hand<'_>,
    worker: WorkerId,
    starts: &[Claimed],
) -> Result<(Vec<TaskId>, BTreeMap<i64, u32>), Fault> {
    let (mut lost, mut started) = (Vec::new(), BTreeMap::new());
    for task in starts {
        match leases::find(hand.db, task.lease)?.filter(|lease| lease.worker == worker.0) {
            None => lost.push(task.id),
            Some(lease) if !lease.is_ahead => {}
            Some(_) => {
                *started.entry(task.place.queue).or_default() += 1;
                let sql = "UPDATE leases SET ahead_until = NULL, since = ?2 WHERE id = ?1";
                hand.db.prepare_cached(sql)?.execute(params![task.lease, moment(hand.now)])?;
            }
        }
    }
    Ok((lost, started))
}

/// What starts counts from now on. Before what ended is given back: that may be some of these.
pub(super) fn count(hand: &mut Hand<'_>, started: &BTreeMap<i64, u32>) -> Result<(), Fault> {
    for (queue, count) in started {
        let sql = "UPDATE queues SET in_use = in_use + ?2 WHERE id = ?1 AND max IS NOT NULL";
        hand.db.prepare_cached(sql)?.execute(params![queue, count])?;
        let sql = "UPDATE cluster SET in_use = in_use + ?1 WHERE cap IS NOT NULL";
        hand.db.prepare_cached(sql)?.execute([count])?;
    }
    Ok(())
}

/// Each that starts takes the place of one that ended, so that no count grows: `freed` is what ended of each queue.
pub(super) fn check(
    hand: &mut Hand<'_>,
    started: &BTreeMap<i64, u32>,
    freed: &BTreeMap<i64, u32>,
) -> Result<(), Fault> {
    for (queue, &count) in started {
        let sql = "SELECT 1 FROM queues WHERE id = ?1 AND max IS NOT NULL";
        let is_capped = hand.db.prepare_cached(sql)?.exists([queue])?;
        if is_capped && count > freed.get(queue).copied().unwrap_or(0) {
            let why = "more started of what was claimed ahead than ended of its queue".to_owned();
            return Err(StoreError::Database { doing: "started tasks", why }.into());
        }
    }
    Ok(())
}

/// Takes back what was claimed ahead and did not start in time. Gives how many tasks that were.
pub(super) fn give_up(hand: &mut Hand<'_>, late: &[i64]) -> Result<u32, Fault> {
    let mut count = 0;
    for &lease in late {
        count += settle::give_up(hand, lease)?;
    }
    Ok(count)
}
