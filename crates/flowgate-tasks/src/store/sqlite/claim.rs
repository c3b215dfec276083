//! Taking tasks out of their lanes.
//!
//! Owns what follows from a plan: the tasks it grants are taken in the order of their places, and what was taken is written
//! down in the same transaction. It decides nothing about limits itself.

use bytes::Bytes;
use flowgate_core::Tick;
use rusqlite::{Connection, params};

use super::{candidates, error::Fault, lanes, lanes::moment, leases, settle::Back, threads::Hand};
use crate::{
    ledger::Ledger,
    plan::{Grant, Key, LaneState, Plan, Scene},
    store::{Again, Claimed, MOST_BYTES, Place, Unread, Wake, Want, WorkerId},
    task::TaskId,
};

/// A lane that came up short leaves room for the others: so often the rest is divided again.
const ROUNDS: usize = 8;

/// What a lane gave.
pub(super) struct Taken {
    pub(super) tasks: Vec<Claimed>,
    /// What the lane is now, if it need not be looked at again.
    pub(super) state: Option<i64>,
}

/// Claims what the limits allow, and when to ask again. Slots that came back of keys it looks at are counted, and written with
/// what it takes; it leaves the others to its caller.
pub(super) fn claim(
    hand: &mut Hand<'_>,
    worker: WorkerId,
    (served, want): (&[i64], Want),
    back: &mut Back,
) -> Result<(Vec<Claimed>, Again, Vec<Unread>), Fault> {
    let (mut scene, has_more) = candidates::load(hand.db, hand.cursors, hand.now, served, want)?;
    let unread = named(hand.db, scene.unread())?;
    let mut claimed = Vec::new();
    let counted: Vec<(u32, Ledger)> = scene.keys.iter().map(|key| (key.in_use, key.ledger.clone())).collect();
    for key in &mut scene.keys {
        if let Some(weight) = back.remove(&key.id) {
            key.in_use = key.in_use.saturating_sub(weight);
        }
    }
    let (mut is_cut_short, mut bytes) = (true, MOST_BYTES);
    for _ in 0..ROUNDS {
        let plan = scene.plan();
        if plan.grants.is_empty() && plan.held.is_empty() {
            is_cut_short = false;
            break;
        }
        carry_out(hand, &mut scene, &plan, (&mut claimed, &mut bytes))?;
        if bytes == 0 {
            // What is left is for another turn.
            scene.budget = 0;
        }
    }
    write(hand.db, &scene, &counted)?;
    leases::write(hand.db, worker, hand.now, &mut claimed)?;
    let is_full = scene.budget == 0 || scene.queues.iter().any(|queue| queue.quota == 0);
    let is_worth_it = !claimed.is_empty() || scene.lanes.is_empty();
    let again = (has_more || is_cut_short || is_full && !scene.lanes.is_empty()) && is_worth_it;
    Ok((claimed, if again { Again::Now } else { Again::WhenWoken }, unread))
}

/// Whose limits these are that cannot be read.
fn named(db: &Connection, unread: Vec<(i64, String)>) -> Result<Vec<Unread>, Fault> {
    let named = |(key, text): (i64, String)| {
        let name =
            db.prepare_cached("SELECT name FROM keys WHERE id = ?1")?.query_row([key], |row| row.get(0));
        Ok(Unread { key: name?, text })
    };
    unread.into_iter().map(named).collect()
}

/// One round, of so many bytes at most. Lanes that have nothing more to give now leave the scene.
fn carry_out(
    hand: &mut Hand<'_>,
    scene: &mut Scene,
    plan: &Plan,
    (claimed, bytes): (&mut Vec<Claimed>, &mut usize),
) -> Result<(), Fault> {
    let (mut is_gone, mut rests_until) = (vec![false; scene.lanes.len()], None::<Tick>);
    for &(lane, held) in &plan.held {
        let (state, until) = match held {
            LaneState::Ready => continue,
            LaneState::Held => (lanes::HELD, None),
            LaneState::Until(until) => {
                rests_until = Some(rests_until.map_or(until, |earlier| earlier.min(until)));
                (lanes::RESTING, Some(until))
            }
        };
        lanes::set(hand.db, scene.lanes[lane].id, state, until)?;
        is_gone[lane] = true;
    }
    hand.wakes.extend(rests_until.map(|until| Wake::Rests(until.since(hand.now))));
    for &grant in &plan.grants {
        let mut taken = take(hand, scene, grant, bytes)?;
        let lane = &scene.lanes[grant.lane];
        if let Some(state) = taken.state {
            lanes::set(hand.db, lane.id, state, None)?;
            is_gone[grant.lane] = true;
        }
        if taken.tasks.is_empty() {
            continue;
        }
        hand.cursors.served(lane);
        let id = lane.queue;
        if let Some(queue) = scene.queues.iter_mut().find(|queue| queue.id == id) {
            queue.quota = queue.quota.saturating_sub(taken.tasks.len() as u32);
        }
        let weights: Vec<u32> = taken.tasks.iter().map(|task| task.weight).collect();
        scene.book(grant, &weights);
        claimed.append(&mut taken.tasks);
    }
    let mut is_gone = is_gone.into_iter();
    scene.lanes.retain(|_| !is_gone.next().unwrap_or(false));
    Ok(())
}

/// Takes what was granted from the head of a lane, while any of these bytes are left: the last one may be larger. A
/// head that is too heavy waits, and nobody overtakes it.
pub(super) fn take(hand: &Hand<'_>, scene: &Scene, grant: Grant, bytes: &mut usize) -> Result<Taken, Fault> {
    let lane = &scene.lanes[grant.lane];
    let place = Place { lane: lane.id, queue: lane.queue, key: lane.key.map(|key| scene.keys[key].id) };
    let sql = "SELECT id, place, attempt, weight, good_until, record FROM tasks
        WHERE lane = ?1 AND place IS NOT NULL AND (good_until IS NULL OR good_until > ?2)
        ORDER BY place LIMIT ?3";
    let mut statement = hand.db.prepare_cached(sql)?;
    let mut rows = statement.query(params![lane.id, moment(hand.now), grant.count])?;
    let (mut tasks, mut room, mut last, mut is_held) = (Vec::new(), grant.room, 0, false);
    let mut is_cut = *bytes == 0;
    while !is_cut && let Some(row) = rows.next()? {
        let weight: u32 = row.get(3)?;
        if weight > room {
            is_held = true;
            break;
        }
        room -= weight;
        last = row.get(1)?;
        let record = Bytes::copy_from_slice(row.get_ref(5)?.as_blob().unwrap_or_default());
        *bytes = bytes.saturating_sub(record.len());
        is_cut = *bytes == 0;
        tasks.push(Claimed {
            id: TaskId(row.get(0)?),
            lease: 0,
            attempt: row.get::<_, u32>(2)? + 1,
            weight,
            good_until: row.get::<_, Option<i64>>(4)?.map(lanes::tick),
            record,
            place,
        });
    }
    drop(rows);
    if !tasks.is_empty() {
        let sql = "DELETE FROM tasks
            WHERE lane = ?1 AND place <= ?2 AND (good_until IS NULL OR good_until > ?3)";
        hand.db.prepare_cached(sql)?.execute(params![lane.id, last, moment(hand.now)])?;
    }
    let is_empty = !is_held && !is_cut && tasks.len() < grant.count as usize;
    let state = if is_held { Some(lanes::HELD) } else { is_empty.then_some(lanes::IDLE) };
    Ok(Taken { tasks, state })
}

/// Writes down what the tasks taken hold of the cluster, of queues and of keys. Of a key that a busy worker settles and
/// claims again nothing has changed.
fn write(db: &Connection, scene: &Scene, counted: &[(u32, Ledger)]) -> Result<(), Fault> {
    if scene.cluster.cap.is_some() && scene.cluster.taken > 0 {
        let in_use = scene.cluster.in_use + scene.cluster.taken;
        db.prepare_cached("UPDATE cluster SET in_use = ?1")?.execute([in_use])?;
    }
    for queue in &scene.queues {
        if queue.counter.cap.is_some() && queue.counter.taken > 0 {
            let in_use = queue.counter.in_use + queue.counter.taken;
            let sql = "UPDATE queues SET in_use = ?2 WHERE id = ?1";
            db.prepare_cached(sql)?.execute(params![queue.id, in_use])?;
        }
    }
    let changed =
        |(key, counted): &(&Key, &(u32, Ledger))| (key.in_use, &key.ledger) != (counted.0, &counted.1);
    for (key, _) in scene.keys.iter().zip(counted).filter(changed) {
        let mut ledger = key.ledger.clone();
        ledger.tidy(scene.now);
        let sql = "UPDATE keys SET in_use = ?2, rates = ?3 WHERE id = ?1";
        db.prepare_cached(sql)?.execute(params![key.id, key.in_use, ledger.to_text()])?;
    }
    Ok(())
}
