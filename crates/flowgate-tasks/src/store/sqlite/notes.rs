//! Notes, on sheets: what is written together about tasks of one block, 64 by their numbers, is one row.
//!
//! Owns the way there and back, so that everybody else sees single notes in the order in which they were
//! written. Those of many tasks come at once, and a row with its entry in an index for each of them costs
//! more than all else about it.

use std::collections::{BTreeMap, HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use super::{
    error::Fault,
    lanes::{moment, tick},
    leases,
    sheet::{self, Line, Sheet},
};
use crate::{
    store::{NewNote, Note, NoteQuery},
    task::TaskId,
};

/// A note's number is that of its batch and, in so many bits behind it, its seat there.
const SEAT_BITS: u32 = 20;
/// So many notes are one batch at most: whoever reads one of them looks through all of them.
const TOGETHER: usize = 1024;
/// A larger one is a batch for itself: whoever reads another has not to read it as well.
const LARGE: usize = 4096;
/// A task is of the same block as those from which it differs in so many bits.
const BLOCK_BITS: u32 = 6;
/// At most so many are removed at once, so that claims are not kept waiting.
const REMOVED: usize = 2000;

/// What a row of `id, lines` has, as numbers of its notes and the notes.
fn each(row: &Row<'_>, mut found: impl FnMut(i64, &Line) -> Result<(), Fault>) -> Result<(), Fault> {
    let batch: i64 = row.get::<_, i64>(0)? >> SEAT_BITS;
    for line in sheet::read(row.get_ref(1)?.as_blob().unwrap_or_default())? {
        found((batch << SEAT_BITS) + i64::from(line.seat), &line)?;
    }
    Ok(())
}

/// Writes these notes, in this order.
pub(super) fn write(db: &Connection, mut notes: &[NewNote]) -> Result<(), Fault> {
    if notes.is_empty() {
        return Ok(());
    }
    let sql = "SELECT coalesce(max(id), 0) FROM sheets";
    let last: i64 = db.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    let mut batch = last >> SEAT_BITS;
    while !notes.is_empty() {
        batch += 1;
        let small = notes.iter().take(TOGETHER).take_while(|note| note.body.len() <= LARGE).count();
        let (together, rest) = notes.split_at(small.max(1));
        write_batch(db, batch, together)?;
        notes = rest;
    }
    Ok(())
}

fn write_batch(db: &Connection, batch: i64, notes: &[NewNote]) -> Result<(), Fault> {
    struct Begun<'a> {
        first: u32,
        latest: i64,
        sheet: Sheet<'a>,
    }
    let mut sheets: BTreeMap<i64, Begun<'_>> = BTreeMap::new();
    for (seat, note) in (0..).zip(notes) {
        let (task, at) = (note.task.0, moment(note.at));
        let new = || Begun { first: seat, latest: at, sheet: Sheet::default() };
        let begun = sheets.entry(task >> BLOCK_BITS).or_insert_with(new);
        begun.latest = begun.latest.max(at);
        begun.sheet.put(seat, task, at, &note.body);
    }
    let mut insert =
        db.prepare_cached("INSERT INTO sheets (id, block, latest, lines) VALUES (?1, ?2, ?3, ?4)")?;
    for (block, Begun { first, latest, sheet }) in sheets {
        insert.execute(params![(batch << SEAT_BITS) + i64::from(first), block, latest, sheet.lines()])?;
    }
    Ok(())
}

/// Notes, the newest first.
pub(super) fn read(db: &Connection, query: &NoteQuery) -> Result<Vec<Note>, Fault> {
    let before = query.before.unwrap_or(i64::MAX);
    let wanted: HashSet<i64> = query.tasks.iter().map(|task| task.0).collect();
    let blocks: HashSet<i64> = wanted.iter().map(|task| task >> BLOCK_BITS).collect();
    let reading = Reading { before, wanted, most: query.most as usize };
    let mut all = Vec::new();
    if blocks.is_empty() {
        let sql = "SELECT id, lines FROM sheets WHERE id < ?1 ORDER BY id DESC";
        reading.read(db, sql, [before], &mut all)?;
    }
    for block in blocks {
        let sql = "SELECT id, lines FROM sheets WHERE block = ?2 AND id < ?1 ORDER BY id DESC";
        reading.read(db, sql, [before, block], &mut all)?;
    }
    all.sort_unstable_by_key(|note| std::cmp::Reverse(note.id));
    all.truncate(reading.most);
    Ok(all)
}

/// Which notes are read.
struct Reading {
    before: i64,
    /// Those of these tasks. Empty: all.
    wanted: HashSet<i64>,
    most: usize,
}

impl Reading {
    /// Reads sheets from the newest on until there are enough. What was written together may be on several: so it is
    /// read as far as the end of a batch.
    fn read(&self, db: &Connection, sql: &str, of: impl Params, all: &mut Vec<Note>) -> Result<(), Fault> {
        let enough = all.len() + self.most;
        let mut statement = db.prepare_cached(sql)?;
        let (mut rows, mut batch) = (statement.query(of)?, i64::MAX);
        while let Some(row) = rows.next()? {
            let of_batch = row.get::<_, i64>(0)? >> SEAT_BITS;
            if of_batch < batch && all.len() >= enough {
                break;
            }
            batch = of_batch;
            each(row, |id, &Line { task, at, ref body, .. }| {
                if id < self.before && (self.wanted.is_empty() || self.wanted.contains(&task)) {
                    all.push(Note { id, task: TaskId(task), at: tick(at), body: body.clone() });
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Removes notes of tasks that are neither alive nor dead letters. They are looked for up to the first batch that is
/// not old: how far that is depends on what is kept, not on how long the log is.
pub(super) fn prune(db: &Connection, before: i64) -> Result<usize, Fault> {
    let sql = "SELECT id, lines FROM sheets WHERE id < coalesce(
        ((SELECT id FROM sheets WHERE latest >= ?1 ORDER BY id LIMIT 1) >> 20) + 1 << 20, 9223372036854775807) ORDER BY id";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([before])?;
    let (mut removed, mut thinned, mut kept) = (0, Vec::new(), HashMap::new());
    while removed < REMOVED
        && let Some(row) = rows.next()?
    {
        let mut left = Vec::new();
        let mut gone = 0;
        each(row, |_, line| {
            if line.at >= before || is_kept(db, &mut kept, line.task)? {
                left.push(line.clone());
            } else {
                gone += 1;
            }
            Ok(())
        })?;
        if gone > 0 {
            let mut sheet = Sheet::default();
            left.iter().for_each(|line| sheet.put(line.seat, line.task, line.at, &line.body));
            thinned.push((row.get::<_, i64>(0)?, sheet.lines().to_vec()));
            removed += gone;
        }
    }
    drop(rows);
    for (id, left) in thinned {
        match left.is_empty() {
            true => db.prepare_cached("DELETE FROM sheets WHERE id = ?1")?.execute([id])?,
            false => {
                db.prepare_cached("UPDATE sheets SET lines = ?2 WHERE id = ?1")?.execute(params![id, left])?
            }
        };
    }
    Ok(removed)
}

/// Whether a task is alive or a dead letter, looked up once for each.
fn is_kept(db: &Connection, known: &mut HashMap<i64, bool>, task: i64) -> Result<bool, Fault> {
    if let Some(is_kept) = known.get(&task) {
        return Ok(*is_kept);
    }
    let sql = "SELECT 1 FROM dead WHERE id = ?1 UNION ALL SELECT 1 FROM tasks WHERE id = ?1 LIMIT 1";
    let there: Option<i64> = db.prepare_cached(sql)?.query_row([task], |row| row.get(0)).optional()?;
    let is_kept = there.is_some() || leases::holder(db, TaskId(task))?.is_some();
    known.insert(task, is_kept);
    Ok(is_kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_the_version_before_sheets_are_there_in_their_order() {
        // Seen to fail: with `id` for `id << 20` in the step, all of them had the same number.
        let db = Connection::open_in_memory().expect("a store");
        db.execute_batch(include_str!("migrations/0002_shelf.sql")).expect("the older tables");
        let bodies = [&b"one"[..], &[0, 255, 0], b"", &[7; 9000]];
        let mut insert = db.prepare("INSERT INTO notes (task, at, body) VALUES (?1, ?2, ?3)").expect("SQL");
        for (number, body) in (0..).zip(bodies) {
            insert.execute(params![i64::MAX - number % 2, number, body]).expect("a note");
        }
        drop(insert);
        db.execute_batch(include_str!("migrations/0009_sheets.sql")).expect("the newer tables");
        let more = NewNote { task: TaskId(3), at: tick(4), body: b"more".to_vec() };
        write(&db, &[more]).expect("written");
        let all = NoteQuery { most: 9, ..NoteQuery::default() };
        let told = read(&db, &all).expect("notes");
        assert!(told.is_sorted_by(|one, next| one.id > next.id));
        let bodies: Vec<&[u8]> = bodies.into_iter().chain([&b"more"[..]]).rev().collect();
        assert_eq!(told.iter().map(|note| note.body.as_slice()).collect::<Vec<_>>(), bodies);
        assert_eq!(told.iter().map(|note| moment(note.at)).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        let of_one = read(&db, &NoteQuery { tasks: vec![TaskId(i64::MAX)], ..all }).expect("notes");
        assert_eq!(of_one.iter().map(|note| moment(note.at)).collect::<Vec<_>>(), [2, 0]);
    }
}
