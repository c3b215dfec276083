//! What workers claim ahead, under soft caps: one task to a lease, which counts in no cap until the task starts.

use std::collections::BTreeMap;

use rusqlite::params;

use super::{
    candidates, claim,
    error::Fault,
    lanes::{self, moment},
    leases,
    settle::{self, Settled},
    threads::Hand,
};
use crate::{
    plan::{Candidate, Counter, Grant, Key, Scene},
    store::{Ahead, Claimed, Place, WorkerId},
    task::TaskId,
};

/// No claim ahead looks at more lanes than these.
const MOST_LANES: u32 = 16;

/// Claims ahead: of full keys, and of lanes without a key where the worker has no slot free.
pub(super) fn take(
    hand: &mut Hand<'_>,
    worker: WorkerId,
    ahead: Ahead,
    is_full: bool,
) -> Result<Vec<Claimed>, Fault> {
    let mut taken = of_keys(hand, worker, ahead.most)?;
    if is_full {
        taken.append(&mut plain(hand, worker, ahead.most - taken.len() as u32)?);
    }
    for task in &mut taken {
        leases::write(hand.db, worker, hand.now, std::slice::from_mut(task))?;
        let until = moment(hand.now.after(ahead.lease));
        let sql = "UPDATE leases SET ahead_until = ?2 WHERE id = ?1";
        hand.db.prepare_cached(sql)?.execute(params![task.lease, until])?;
    }
    Ok(taken)
}

/// Of the lanes without a key, in the order in which they are served: those of queues of which the worker holds
/// something, and that are not beyond a cap that was lowered.
fn plain(hand: &mut Hand<'_>, worker: WorkerId, most: u32) -> Result<Vec<Claimed>, Fault> {
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
            found.push(Candidate {
                id: row.get(0)?,
                queue,
                key: None,
                priority: row.get(2)?,
                own: None,
                unread: None,
            });
        }
    }
    drop(rows);
    drop(statement);
    let scene = scene(hand, Vec::new(), found);
    let mut taken = Vec::new();
    for lane in 0..scene.lanes.len() {
        let count = most - taken.len() as u32;
        if count == 0 {
            break;
        }
        let mut tasks = take_all(hand, &scene, lane, count)?;
        if let Some(state) = tasks.state {
            lanes::set(hand.db, scene.lanes[lane].id, state, None)?;
        }
        taken.append(&mut tasks.tasks);
    }
    Ok(taken)
}

/// The first of a lane, however large: each is a row of its own.
fn take_all(hand: &Hand<'_>, scene: &Scene, lane: usize, count: u32) -> Result<claim::Taken, Fault> {
    claim::take(hand, scene, Grant { lane, count, room: u32::MAX }, &mut usize::MAX.clone())
}

/// Where all that runs of a key runs in the worker, the key is full, and nobody else has anything of it at hand: one
/// for each that runs, of one slot.
fn of_keys(hand: &mut Hand<'_>, worker: WorkerId, most: u32) -> Result<Vec<Claimed>, Fault> {
    let mut taken: Vec<Claimed> = Vec::new();
    for ((key, queue), riding) in leases::keys_of(hand.db, worker)? {
        let found = full_lane(hand, key, queue, riding.weight)?;
        let Some((scene, lane)) = found.filter(|_| riding.others_wait == 0) else { continue };
        let count = riding.count.saturating_sub(riding.wait).min(most - taken.len() as u32);
        if count == 0 {
            continue;
        }
        let heaviest =
            "SELECT max(weight) FROM (SELECT weight FROM tasks WHERE lane = ?1 AND place IS NOT NULL
            ORDER BY place LIMIT ?2)";
        let head = params![scene.lanes[lane].id, count];
        let heaviest: Option<u32> = hand.db.prepare_cached(heaviest)?.query_row(head, |row| row.get(0))?;
        if heaviest == Some(1) {
            taken.append(&mut take_all(hand, &scene, lane, count)?.tasks);
        }
    }
    Ok(taken)
}

/// The one lane of a full key, of which nothing runs but this much.
fn full_lane(hand: &Hand<'_>, key: i64, queue: i64, weight: u32) -> Result<Option<(Scene, usize)>, Fault> {
    let sql =
        "SELECT lanes.id, lanes.queue, lanes.limits, keys.in_use, keys.paused, keys.pinned, keys.sent, \
        keys.latest, keys.rates,
            lanes.priority, queues.paused
        FROM lanes JOIN keys ON keys.id = lanes.key JOIN queues ON queues.id = lanes.queue
        WHERE lanes.key = ?1 AND lanes.state <> 0";
    let mut statement = hand.db.prepare_cached(sql)?;
    let mut rows = statement.query([key])?;
    let (mut keys, mut lanes) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        if lanes.is_empty() {
            keys.push(candidates::read_key(key, row)?);
        }
        if row.get(10)? || row.get::<_, i64>(1)? != queue {
            return Ok(None);
        }
        let limits = row.get_ref(2)?.as_str().unwrap_or_default();
        lanes.push(Candidate::read(row.get(0)?, queue, Some(0), row.get(9)?, limits));
    }
    drop(rows);
    let scene = scene(hand, keys, lanes);
    let is_alone = scene.keys.first().is_some_and(|key| key.in_use == weight);
    Ok((is_alone && scene.full_lanes().next().is_some()).then_some((scene, 0)))
}

fn scene(hand: &Hand<'_>, keys: Vec<Key>, lanes: Vec<Candidate>) -> Scene {
    Scene { now: hand.now, budget: 0, cluster: Counter::default(), queues: Vec::new(), keys, lanes }
}

/// What starts of what was claimed ahead: how many of each queue, how many slots of each key, and which tasks.
#[derive(Default)]
pub(super) struct Started {
    queues: BTreeMap<i64, u32>,
    keys: BTreeMap<i64, u32>,
    tasks: Vec<New>,
}

struct New {
    id: TaskId,
    lease: i64,
    weight: u32,
    place: Place,
}

/// What was claimed ahead counts from its start on. Gives what was lost before, and what starts.
pub(super) fn start(
    hand: &mut Hand<'_>,
    worker: WorkerId,
    starts: &[Claimed],
) -> Result<(Vec<TaskId>, Started), Fault> {
    let (mut lost, mut started) = (Vec::new(), Started::default());
    for &Claimed { id, lease, weight, place, .. } in starts {
        match leases::find(hand.db, lease)?.filter(|lease| lease.worker == worker.0) {
            None => lost.push(id),
            Some(lease) if !lease.is_ahead => {}
            Some(_) => {
                *started.queues.entry(place.queue).or_default() += 1;
                if let Some(key) = place.key {
                    *started.keys.entry(key).or_default() += weight;
                }
                let sql = "UPDATE leases SET ahead_until = NULL, since = ?2 WHERE id = ?1";
                hand.db.prepare_cached(sql)?.execute(params![lease, moment(hand.now)])?;
                started.tasks.push(New { id, lease, weight, place });
            }
        }
    }
    Ok((lost, started))
}

/// What starts counts from now on. Before what ended is given back: that may be some of these.
pub(super) fn count(hand: &mut Hand<'_>, started: &Started) -> Result<(), Fault> {
    for (queue, count) in &started.queues {
        let sql = "UPDATE queues SET in_use = in_use + ?2 WHERE id = ?1 AND max IS NOT NULL";
        hand.db.prepare_cached(sql)?.execute(params![queue, count])?;
        let sql = "UPDATE cluster SET in_use = in_use + ?1 WHERE cap IS NOT NULL";
        hand.db.prepare_cached(sql)?.execute([count])?;
    }
    for (key, weight) in &started.keys {
        let sql = "UPDATE keys SET in_use = in_use + ?2 WHERE id = ?1";
        hand.db.prepare_cached(sql)?.execute(params![key, weight])?;
    }
    Ok(())
}

/// Each that starts takes the place of one that ended, so that no count grows; one that has ended by now, its own. One
/// that takes nobody's goes back to its line: gives those.
pub(super) fn refuse(hand: &mut Hand<'_>, started: Started, settled: &Settled) -> Result<Vec<TaskId>, Fault> {
    let (mut queues, mut keys) = (settled.queues.clone(), settled.keys.clone());
    let left = |places: &BTreeMap<i64, u32>, of: i64| places.get(&of).copied().unwrap_or(0);
    if started.queues.iter().all(|(queue, count)| *count <= left(&queues, *queue))
        && started.keys.iter().all(|(key, weight)| *weight <= left(&keys, *key))
    {
        return Ok(Vec::new());
    }
    let mut all: u32 = queues.values().sum();
    let has_cap = hand.db.prepare_cached("SELECT 1 FROM cluster WHERE cap IS NOT NULL")?.exists([])?;
    let mut tasks = Vec::new();
    for task in started.tasks {
        tasks.push((leases::find(hand.db, task.lease)?.is_some(), task));
    }
    tasks.sort_by_key(|(is_held, _)| *is_held);
    let mut refused = Vec::new();
    for (_, New { id, lease, weight, place }) in tasks {
        let sql = "SELECT 1 FROM queues WHERE id = ?1 AND max IS NOT NULL";
        let is_capped = hand.db.prepare_cached(sql)?.exists([place.queue])?;
        let of_key = place.key.map_or(u32::MAX, |key| left(&keys, key));
        if is_capped && left(&queues, place.queue) == 0 || has_cap && all == 0 || of_key < weight {
            uncount(hand, place, weight)?;
            settle::give_up(hand, lease)?;
            refused.push(id);
            continue;
        }
        all = all.saturating_sub(1);
        queues.entry(place.queue).and_modify(|left| *left = left.saturating_sub(1));
        place.key.map(|key| keys.entry(key).and_modify(|left| *left -= weight));
    }
    Ok(refused)
}

/// One that was counted when it started does not.
fn uncount(hand: &mut Hand<'_>, place: Place, weight: u32) -> Result<(), Fault> {
    let sql = "UPDATE queues SET in_use = max(0, in_use - 1) WHERE id = ?1 AND max IS NOT NULL";
    hand.db.prepare_cached(sql)?.execute([place.queue])?;
    let sql = "UPDATE cluster SET in_use = max(0, in_use - 1) WHERE cap IS NOT NULL";
    hand.db.prepare_cached(sql)?.execute([])?;
    let sql = "UPDATE keys SET in_use = max(0, in_use - ?2) WHERE id = ?1";
    hand.db.prepare_cached(sql)?.execute(params![place.key, weight])?;
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
