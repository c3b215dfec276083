//! Changing limits while work waits under them.

use rusqlite::{OptionalExtension as _, params};

use super::{
    error::Fault,
    lanes::{self, moment},
    leases,
    threads::Hand,
};
use crate::{
    store::{CANCELLING, KeyChange, QueueLimits, Wake, pins},
    terms,
};

/// Everybody looks again, and hands back what is at hand of this key, or of any. Other processes find it where they
/// look for cancellations, under a number that no task has.
fn tell(hand: &mut Hand<'_>, key: Option<i64>) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO cancels (task, until) VALUES (?1, ?2)";
    let until = moment(hand.now.after(CANCELLING));
    hand.db.prepare_cached(sql)?.execute(params![-key.unwrap_or(0), until])?;
    hand.wakes.push(Wake::Limits(key));
    hand.wake();
    Ok(())
}

/// Sets how many tasks may be held in all. A cap counts those that are held already.
pub(super) fn set_cluster_cap(hand: &mut Hand<'_>, cap: Option<u32>) -> Result<(), Fault> {
    let in_use = if cap.is_some() { leases::count(hand.db)? } else { 0 };
    hand.db.prepare_cached("UPDATE cluster SET cap = ?1, in_use = ?2")?.execute(params![cap, in_use])?;
    tell(hand, None)?;
    Ok(())
}

/// Sets whose limits govern where a key did not choose, and has all that waits under those keys looked at again.
pub(super) fn set_latest(hand: &mut Hand<'_>, is_latest: bool) -> Result<(), Fault> {
    hand.db.prepare_cached("UPDATE cluster SET latest = ?1")?.execute([is_latest])?;
    let sql = "UPDATE keys SET latest = ?1 WHERE NOT chosen AND latest <> ?1 RETURNING id";
    let mut statement = hand.db.prepare_cached(sql)?;
    let changed = statement.query_map([is_latest], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    for key in changed {
        lanes::release_all(hand.db, key)?;
    }
    tell(hand, None)?;
    Ok(())
}

/// Makes a queue, or changes it.
pub(super) fn set_queue(hand: &mut Hand<'_>, queue: &QueueLimits) -> Result<(), Fault> {
    let id = lanes::queue(hand.db, &queue.name)?;
    let in_use = if queue.max.is_some() { leases::recount_queue(hand.db, id)? } else { 0 };
    let sql = "UPDATE queues SET priority = ?2, max = ?3, in_use = ?4 WHERE id = ?1";
    hand.db.prepare_cached(sql)?.execute(params![id, queue.priority, queue.max, in_use])?;
    tell(hand, None)?;
    Ok(())
}

/// Whether there is such a queue.
pub(super) fn pause_queue(hand: &mut Hand<'_>, name: &str, is_paused: bool) -> Result<bool, Fault> {
    let sql = "UPDATE queues SET paused = ?2 WHERE name = ?1";
    let is_known = hand.db.prepare_cached(sql)?.execute(params![name, is_paused])? == 1;
    tell(hand, None)?;
    Ok(is_known)
}

/// Changes a key, and has all that waits for it looked at again.
pub(super) fn change_key(hand: &mut Hand<'_>, name: &str, change: &KeyChange) -> Result<(), Fault> {
    if let KeyChange::Pin(limits) = change {
        terms::check(limits)?;
    }
    let id = lanes::key(hand.db, name)?;
    let set = |sql: &str, value: &dyn rusqlite::ToSql| -> Result<(), Fault> {
        hand.db.prepare_cached(sql)?.query_row(params![id, value], |_| Ok(())).optional()?;
        Ok(())
    };
    match change {
        KeyChange::Pause => set("UPDATE keys SET paused = ?2 WHERE id = ?1", &true)?,
        KeyChange::Resume => set("UPDATE keys SET paused = ?2 WHERE id = ?1", &false)?,
        KeyChange::Pin(limits) => {
            set("UPDATE keys SET pinned = ?2 WHERE id = ?1", &terms::to_text(Some(limits)))?;
        }
        KeyChange::Halves { max, rate } => {
            let sql = "SELECT pinned FROM keys WHERE id = ?1";
            let known: Option<String> = hand.db.prepare_cached(sql)?.query_row([id], |row| row.get(0))?;
            let known = known.and_then(|text| terms::read(&text).0);
            let pinned = pins::changed(known, *max, *rate)?.map(|limits| terms::to_text(Some(&limits)));
            set("UPDATE keys SET pinned = ?2 WHERE id = ?1", &pinned)?;
        }
        KeyChange::Unpin => set("UPDATE keys SET pinned = ?2 WHERE id = ?1", &None::<String>)?,
        KeyChange::Latest(is_latest) => {
            set("UPDATE keys SET latest = ?2, chosen = 1 WHERE id = ?1", is_latest)?;
        }
        KeyChange::LatestAsOthers => {
            set("UPDATE keys SET latest = (SELECT latest FROM cluster), chosen = ?2 WHERE id = ?1", &false)?;
        }
        KeyChange::ResetRate
        | KeyChange::Rest { .. }
        | KeyChange::RestOn { .. }
        | KeyChange::Wake { .. }
        | KeyChange::WakeAll => {}
    }
    if change.is_booked() {
        rebook(hand, id, change)?;
    }
    lanes::release_all(hand.db, id)?;
    tell(hand, Some(id))?;
    Ok(())
}

/// Writes what is kept of a key's rates and rests after this change.
fn rebook(hand: &mut Hand<'_>, id: i64, change: &KeyChange) -> Result<(), Fault> {
    let find = "SELECT rates FROM keys WHERE id = ?1";
    let rates: String = hand.db.prepare_cached(find)?.query_row([id], |row| row.get(0))?;
    let set = "UPDATE keys SET rates = ?2 WHERE id = ?1";
    hand.db.prepare_cached(set)?.execute(params![id, change.book(&rates, hand.now)])?;
    Ok(())
}
