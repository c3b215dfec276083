//! Workers: how they come, take their turns and go.

use rusqlite::{OptionalExtension as _, params};

use super::{ahead, claim, error::Fault, lanes, lanes::moment, settle, threads::Hand};
use crate::store::{NewWorker, StoreError, Turn, Turned, WorkerId};

/// Makes a worker known, and the queues it serves.
pub(super) fn register(hand: &mut Hand<'_>, worker: &NewWorker) -> Result<WorkerId, Fault> {
    let queues = worker.queues.iter().map(|name| lanes::queue(hand.db, name).map(|id| id.to_string()));
    let queues = queues.collect::<Result<Vec<String>, Fault>>()?.join(",");
    let lease = i64::try_from(worker.lease.as_nanos()).unwrap_or(i64::MAX);
    let until = moment(hand.now.after(worker.lease));
    let sql = "INSERT INTO workers (name, slots, queues, lease, lease_until, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let values = params![worker.name, worker.slots, queues, lease, until, moment(hand.now)];
    Ok(WorkerId(hand.db.prepare_cached(sql)?.insert(values)?))
}

/// Renews a worker's lease, if it is still known.
pub(super) fn beat(hand: &mut Hand<'_>, worker: WorkerId) -> Result<bool, Fault> {
    let sql = "UPDATE workers SET lease_until = ?2 + lease WHERE id = ?1";
    Ok(hand.db.prepare_cached(sql)?.execute(params![worker.0, moment(hand.now)])? == 1)
}

/// Makes a worker unknown, and takes back what it still holds.
pub(super) fn leave(hand: &mut Hand<'_>, worker: WorkerId) -> Result<(), Fault> {
    settle::take_back(hand, worker.0)?;
    hand.wake();
    Ok(())
}

/// Settles, then claims.
pub(super) fn turn(hand: &mut Hand<'_>, worker: WorkerId, turn: Turn) -> Result<Turned, Fault> {
    let is_settling = !turn.settles.is_empty();
    let (missed, started) = ahead::start(hand, worker, &turn.starts)?;
    ahead::count(hand, &started)?;
    let settled = settle::settle(hand, worker, turn.settles)?;
    let refused = ahead::refuse(hand, started, &settled)?;
    let mut back = settled.keys;
    let lost = settled.lost.into_iter().chain(missed).chain(refused).collect();
    let mut turned = Turned { lost, now: hand.now, ..Turned::default() };
    if let Some(want) = turn.want {
        let sql = "SELECT queues FROM workers WHERE id = ?1";
        let found = hand.db.prepare_cached(sql)?.query_row([worker.0], |row| row.get(0)).optional()?;
        let queues: String = found.ok_or(StoreError::Gone { worker })?;
        let served: Vec<i64> = queues.split(',').filter_map(|id| id.parse().ok()).collect();
        lanes::wake_due(hand.db, hand.now)?;
        (turned.claimed, turned.again, turned.unread) =
            claim::claim(hand, worker, (&served, want), &mut back)?;
        settle::write_back(hand.db, &std::mem::take(&mut back))?;
        let is_full = turned.claimed.len() as u32 == want.slots;
        if let Some(ahead) = turn.ahead.filter(|ahead| ahead.most > 0) {
            turned.ahead = ahead::take(hand, worker, ahead, is_full)?;
        }
    }
    settle::write_back(hand.db, &back)?;
    // What came back and was not taken here may be what another worker waits for.
    if is_settling && hand.db.prepare_cached("SELECT 1 FROM lanes WHERE state = 1 LIMIT 1")?.exists([])? {
        hand.wake();
    }
    Ok(turned)
}
