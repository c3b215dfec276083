//! What time brings about.
//!
//! Owns the moments at which tasks, leases and what is kept fall due, and cleaning up behind keys that nobody uses.

use std::time::Duration;

use flowgate_core::Tick;
use rusqlite::{Connection, params};

use super::{
    ahead,
    error::Fault,
    lanes,
    lanes::{moment, tick},
    leases, settle,
    threads::Hand,
};
use crate::{
    clock::Look,
    ledger::Ledger,
    store::{CANCELLING, Cancelled, DEAD_KEPT, Kept, Leaving, MOST_IDLE, SOON, Wake},
    task::TaskId,
};

/// At most so many rows of a kind at once, so that claims are not kept waiting.
const BATCH: u32 = 2000;

/// Does what has fallen due.
pub(super) fn upkeep(hand: &mut Hand<'_>) -> Result<Kept, Fault> {
    let mut kept = Kept { expired: expire(hand)?, ..Kept::default() };
    // No lease lasts longer than from now on: one that seems to was renewed before the clock was set back.
    let sql = "UPDATE workers SET lease_until = ?1 + lease WHERE lease_until > ?1 + lease";
    hand.db.prepare_cached(sql)?.execute([moment(hand.now)])?;
    // And none ends because the clock was set forward: whoever had one then has one from now on.
    let look = Look { showed: hand.now, passed: hand.wall.passed() };
    let seen = hand.cursors.seen;
    if let Some(by) = seen.and_then(|seen| look.set_forward_since(&seen)) {
        let sql = "UPDATE workers SET lease_until = ?1 + lease WHERE lease_until > ?2";
        let before = moment(hand.now).saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX));
        hand.db.prepare_cached(sql)?.execute([moment(hand.now), before])?;
    }
    for worker in ids(hand.db, "SELECT id FROM workers WHERE lease_until <= ?1 LIMIT ?2", hand.now)? {
        kept.recovered += settle::take_back(hand, worker)?;
    }
    let late = ids(hand.db, "SELECT id FROM leases WHERE ahead_until <= ?1 LIMIT ?2", hand.now)?;
    kept.recovered += ahead::give_up(hand, &late)?;
    kept.due = join(hand)?;
    let mut woken = lanes::wake_due(hand.db, hand.now)?;
    // Moments that were reckoned before that are not waited for, either. Whether it was while nobody looked, nobody
    // knows: so those that are not soon are looked at when a process begins.
    let doubted = match seen {
        None => Some(moment(hand.now.after(SOON))),
        Some(seen) => look.is_before(&seen).then_some(0),
    };
    if let Some(after) = doubted {
        woken += lanes::wake_after(hand.db, after)?;
    }
    hand.cursors.seen = Some(look);
    forget(hand)?;
    if kept.due > 0 || kept.recovered > 0 || kept.expired > 0 || woken > 0 {
        hand.wake();
    }
    let is_more = kept.expired >= BATCH || kept.due >= BATCH;
    kept.next = if is_more { Some(Duration::ZERO) } else { next(hand.db, hand.now)? };
    Ok(kept)
}

/// Lanes whose rest is over are ready.
pub(super) fn wake_rested(hand: &mut Hand<'_>) -> Result<Option<Duration>, Fault> {
    if lanes::wake_due(hand.db, hand.now)? > 0 {
        hand.wake();
    }
    let sql = "SELECT min(wake_at) FROM lanes WHERE state = 3";
    let at: Option<i64> = hand.db.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(at.map(|at| tick(at).since(hand.now)))
}

fn ids(db: &Connection, sql: &str, now: Tick) -> Result<Vec<i64>, Fault> {
    let mut statement = db.prepare_cached(sql)?;
    let found = statement.query_map(params![moment(now), BATCH], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Tasks that were not started in time.
fn expire(hand: &mut Hand<'_>) -> Result<u32, Fault> {
    let expired = ids(hand.db, "SELECT id FROM tasks WHERE good_until <= ?1 LIMIT ?2", hand.now)?;
    for &id in &expired {
        remove(hand, id, Some("expired"))?;
    }
    Ok(expired.len() as u32)
}

/// Takes a task that waits out of its line, and to the dead list if there is a reason for it. Whether there was one.
fn remove(hand: &mut Hand<'_>, id: i64, reason: Option<&str>) -> Result<bool, Fault> {
    let db = hand.db;
    let mut statement =
        db.prepare_cached("DELETE FROM tasks WHERE id = ?1 RETURNING lane, attempt, weight, record")?;
    let mut found = statement.query_map([id], |row| {
        Ok(((id, row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?), row.get::<_, Vec<u8>>(3)?))
    })?;
    let Some((row, record)) = found.next().transpose()? else { return Ok(false) };
    // A statement with RETURNING has its effect when it is at its end.
    debug_assert!(found.next().is_none(), "a task is one row");
    lanes::look_again(db, row.1)?;
    match reason {
        Some(reason) => settle::bury_row(hand, row, &record, (reason, ""))?,
        None => settle::tell_end(hand, TaskId(id), &record),
    }
    Ok(true)
}

/// Delayed tasks join their line, in the order in which they fell due.
fn join(hand: &mut Hand<'_>) -> Result<u32, Fault> {
    let due = ids(hand.db, "SELECT id FROM tasks WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2", hand.now)?;
    if due.is_empty() {
        return Ok(0);
    }
    let mut place = lanes::take_numbers(hand.db, due.len() as u32)?;
    for id in &due {
        place += 1;
        let sql = "UPDATE tasks SET place = ?2, due_at = NULL WHERE id = ?1 RETURNING lane";
        let lane = hand.db.prepare_cached(sql)?.query_row(params![id, place], |row| row.get(0))?;
        lanes::fill(hand.db, lane)?;
    }
    Ok(due.len() as u32)
}

/// Results and dedupe ids whose time is over, and keys and lanes that say nothing.
fn forget(hand: &mut Hand<'_>) -> Result<(), Fault> {
    for sql in [
        "DELETE FROM results WHERE id IN (SELECT id FROM results WHERE until <= ?1 LIMIT ?2)",
        "DELETE FROM dedupes WHERE name IN (SELECT name FROM dedupes WHERE until <= ?1 LIMIT ?2)",
    ] {
        hand.db.prepare_cached(sql)?.execute(params![moment(hand.now), BATCH])?;
    }
    let sql = "DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE at <= ?1 ORDER BY at LIMIT ?2)";
    let kept = i64::try_from(DEAD_KEPT.as_nanos()).unwrap_or(i64::MAX);
    hand.db.prepare_cached(sql)?.execute(params![moment(hand.now).saturating_sub(kept), BATCH])?;
    forget_cancels(hand)?;
    forget_keys(hand)
}

/// A task that somebody still holds may go back to its line, however long ago it was cancelled.
fn forget_cancels(hand: &mut Hand<'_>) -> Result<(), Fault> {
    for task in ids(hand.db, "SELECT task FROM cancels WHERE until <= ?1 LIMIT ?2", hand.now)? {
        match leases::holder(hand.db, TaskId(task))? {
            Some(_) => note(hand, task)?,
            None => drop(hand.db.prepare_cached("DELETE FROM cancels WHERE task = ?1")?.execute([task])?),
        }
    }
    Ok(())
}

/// Remembers that this task was cancelled while it ran.
fn note(hand: &mut Hand<'_>, task: i64) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO cancels (task, until) VALUES (?1, ?2)";
    hand.db.prepare_cached(sql)?.execute([task, moment(hand.now.after(CANCELLING))])?;
    Ok(())
}

/// Looks at some keys, each time at others. Lanes of no key are few and stay.
fn forget_keys(hand: &mut Hand<'_>) -> Result<(), Fault> {
    let sql = "SELECT id, rates, in_use = 0 AND NOT paused AND pinned IS NULL AND NOT chosen FROM keys
        WHERE id > ?1 ORDER BY id LIMIT ?2";
    let mut statement = hand.db.prepare_cached(sql)?;
    let rows = statement.query_map(params![hand.cursors.keys, BATCH / 4], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let keys: Vec<(i64, String, bool)> = rows.collect::<Result<_, _>>()?;
    let is_round = keys.len() < BATCH as usize / 4;
    hand.cursors.keys = keys.last().filter(|_| !is_round).map_or(0, |key| key.0);
    // What was claimed ahead counts nowhere, and may go back to its lane.
    let ahead = leases::keys_ahead(hand.db)?;
    for (key, rates, is_plain) in keys {
        let mut ledger = Ledger::read(&rates);
        ledger.tidy(hand.now);
        if !is_plain || ledger != Ledger::default() || ahead.contains(&key) {
            forget_lanes(hand.db, key)?;
            continue;
        }
        let sql =
            "DELETE FROM lanes WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM tasks WHERE lane = lanes.id)";
        hand.db.prepare_cached(sql)?.execute([key])?;
        let sql = "DELETE FROM keys WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM lanes WHERE key = ?1)";
        hand.db.prepare_cached(sql)?.execute([key])?;
    }
    Ok(())
}

/// Of a key that is in use, with more lanes than anybody needs: those with nothing in them that no lease knows.
fn forget_lanes(db: &Connection, key: i64) -> Result<(), Fault> {
    let lanes: u32 =
        db.prepare_cached("SELECT count(*) FROM lanes WHERE key = ?1")?.query_row([key], |row| row.get(0))?;
    if lanes <= MOST_IDLE {
        return Ok(());
    }
    let sql = "SELECT id FROM lanes WHERE key = ?1
        AND NOT EXISTS (SELECT 1 FROM tasks WHERE lane = lanes.id)";
    let mut statement = db.prepare_cached(sql)?;
    let spare = statement.query_map([key], |row| row.get(0))?;
    let spare: Vec<i64> = spare.collect::<Result<_, _>>()?;
    let held = leases::lanes(db)?;
    for lane in spare.into_iter().filter(|lane| !held.contains(lane)) {
        db.prepare_cached("DELETE FROM lanes WHERE id = ?1")?.execute([lane])?;
    }
    Ok(())
}

/// How long until something falls due.
fn next(db: &Connection, now: Tick) -> Result<Option<Duration>, Fault> {
    let sql = "SELECT min(at) FROM (
        SELECT min(due_at) AS at FROM tasks WHERE due_at IS NOT NULL
        UNION ALL SELECT min(good_until) FROM tasks WHERE good_until IS NOT NULL
        UNION ALL SELECT min(lease_until) FROM workers
        UNION ALL SELECT min(ahead_until) FROM leases WHERE ahead_until IS NOT NULL
        UNION ALL SELECT min(wake_at) FROM lanes WHERE state = 3
        UNION ALL SELECT min(until) FROM results
        UNION ALL SELECT min(until) FROM dedupes)";
    let at: Option<i64> = db.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(at.map(|at| tick(at).since(now)))
}

/// Which of these were cancelled while they ran.
pub(super) fn cancelled(db: &Connection, among: &[TaskId]) -> Result<Vec<TaskId>, Fault> {
    let mut find = db.prepare_cached("SELECT 1 FROM cancels WHERE task = ?1")?;
    let mut found = Vec::new();
    for &id in among {
        if find.exists([id.0])? {
            found.push(id);
        }
    }
    Ok(found)
}

/// Stops tasks from starting, or tells their workers to stop them.
pub(super) fn cancel_all(
    hand: &mut Hand<'_>,
    ids: &[TaskId],
    leaving: Leaving,
) -> Result<Vec<Cancelled>, Fault> {
    ids.iter().map(|&id| cancel(hand, id, leaving)).collect()
}

fn cancel(hand: &mut Hand<'_>, id: TaskId, leaving: Leaving) -> Result<Cancelled, Fault> {
    if remove(hand, id.0, (leaving == Leaving::Dead).then_some("cancelled"))? {
        hand.wake();
        return Ok(Cancelled::Waiting);
    }
    if leases::holder(hand.db, id)?.is_some() {
        hand.wakes.push(Wake::Cancel(id));
        note(hand, id.0)?;
        return Ok(Cancelled::Running);
    }
    Ok(Cancelled::Unknown)
}
