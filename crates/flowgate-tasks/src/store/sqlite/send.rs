//! Taking tasks in.
//!
//! Owns the way from a task as its sender describes it to its row, and back into line for a task that was
//! dead.

use std::{collections::hash_map::Entry, rc::Rc};

use flowgate_core::{Limits, Tick};
use foldhash::{HashMap, HashMapExt as _};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, params};

use super::{error::Fault, lanes, lanes::moment, notes, threads::Hand};
use crate::{
    store::{NewNote, Sent, Wake},
    task::{Dedupe, NewTask, TaskId},
    terms,
};

/// A row of `tasks`.
pub(super) struct Row<'a> {
    pub(super) id: i64,
    pub(super) lane: i64,
    /// In line, or delayed.
    pub(super) line: Line,
    /// How often it was started.
    pub(super) attempt: u32,
    pub(super) weight: u32,
    pub(super) good_until: Option<Tick>,
    pub(super) record: &'a [u8],
}

/// Where a task waits.
#[derive(Clone, Copy)]
pub(super) enum Line {
    /// In line, here.
    Place(i64),
    /// Until it joins the line.
    Until(Tick),
}

/// Stores a task.
pub(super) fn put(db: &Connection, row: &Row<'_>) -> Result<(), Fault> {
    put_by(&mut db.prepare_cached(PUT)?, row)
}

const PUT: &str = "INSERT INTO tasks (id, lane, place, attempt, weight, due_at, good_until, record)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// The same, by the statement that is at hand.
fn put_by(statement: &mut CachedStatement<'_>, row: &Row<'_>) -> Result<(), Fault> {
    let (place, due_at) = match row.line {
        Line::Place(place) => (Some(place), None),
        Line::Until(due_at) => (None, Some(moment(due_at))),
    };
    let good_until = row.good_until.map(moment);
    let values = params![row.id, row.lane, place, row.attempt, row.weight, due_at, good_until, row.record];
    statement.execute(values)?;
    Ok(())
}

/// Stores these tasks, in this order.
pub(super) fn send(hand: &mut Hand<'_>, tasks: &[NewTask]) -> Result<Vec<Sent>, Fault> {
    for task in tasks {
        task.check()?;
    }
    let mut sender = Sender::new(hand.db)?;
    let count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    let mut last = lanes::take_numbers(hand.db, count)?;
    let mut sent = Vec::with_capacity(tasks.len());
    for task in tasks {
        last += 1;
        sent.push(sender.accept(hand, task, last)?);
    }
    sender.fill(hand)?;
    Ok(sent)
}

/// What names a lane: queue, key, priority and the text of its limits.
type Names<'a> = (&'a str, Option<&'a str>, i16, Rc<str>);

/// What is already known of the tasks sent together.
pub(super) struct Sender<'a> {
    /// Looked up once: to find a statement by its text costs a tenth of what it does.
    put: CachedStatement<'a>,
    queues: HashMap<&'a str, i64>,
    lanes: HashMap<Names<'a>, i64>,
    /// The limits seen last, and their text: mostly the next has the same.
    limits: (Option<Limits>, Rc<str>),
    /// The lanes that got something, and whether they are known to be ready.
    filled: HashMap<i64, bool>,
    notes: Vec<NewNote>,
    keys: HashMap<&'a str, Key>,
}

struct Key {
    id: i64,
    /// The last limits seen for it.
    sent: String,
    /// Whether it was made here: then it has no lanes but those of this sender.
    is_new: bool,
}

impl<'a> Sender<'a> {
    pub(super) fn new(db: &'a Connection) -> Result<Self, Fault> {
        Ok(Sender {
            put: db.prepare_cached(PUT)?,
            queues: HashMap::new(),
            lanes: HashMap::new(),
            limits: (None, "".into()),
            filled: HashMap::new(),
            notes: Vec::new(),
            keys: HashMap::new(),
        })
    }

    fn accept(&mut self, hand: &mut Hand<'_>, task: &'a NewTask, id: i64) -> Result<Sent, Fault> {
        let now = hand.now;
        if let Some(dedupe) = &task.dedupe
            && let Some(first) = note(hand.db, dedupe, id, now)?
        {
            return Ok(Sent { id: TaskId(first), is_duplicate: true });
        }
        self.store(hand, task, id)?;
        Ok(Sent { id: TaskId(id), is_duplicate: false })
    }

    /// Stores one, whatever its dedupe id is.
    pub(super) fn store(&mut self, hand: &mut Hand<'_>, task: &'a NewTask, id: i64) -> Result<(), Fault> {
        let now = hand.now;
        let start = task.start.map(|start| start.resolve(now)).filter(|start| *start > now);
        let line = start.map_or(Line::Place(id), Line::Until);
        let lane = self.lane(hand, task, line)?;
        match line {
            Line::Place(_) => drop(self.filled.entry(lane).or_insert(false)),
            Line::Until(_) => hand.wakes.push(Wake::Due),
        }
        let good_until = task.good_until.map(|until| until.resolve(now));
        let record = task.record.to_bytes();
        let row = Row { id, lane, line, attempt: 0, weight: task.weight, good_until, record: &record };
        put_by(&mut self.put, &row)?;
        self.notes.extend(task.note().map(|(at, body)| NewNote { task: TaskId(id), at, body }));
        Ok(())
    }

    /// Has the lanes looked at that got something, and writes what is noted of the tasks. To be done once, at the end.
    pub(super) fn fill(self, hand: &mut Hand<'_>) -> Result<(), Fault> {
        notes::write(hand.db, &self.notes)?;
        for (lane, is_ready) in self.filled {
            if !is_ready {
                lanes::fill(hand.db, lane)?;
            }
            hand.wake();
        }
        Ok(())
    }

    /// The task's lane. One that has to be made for a new key is made ready, for whatever stands in line.
    fn lane(&mut self, hand: &mut Hand<'_>, task: &'a NewTask, line: Line) -> Result<i64, Fault> {
        if self.limits.0 != task.limits {
            self.limits = (task.limits, terms::to_text(task.limits.as_ref()).into());
        }
        let limits = Rc::clone(&self.limits.1);
        let (key, is_new) = match task.key.as_deref() {
            Some(name) => self.key(hand, name, &limits)?,
            None => (0, false),
        };
        let names = (task.queue.as_str(), task.key.as_deref(), task.priority, limits);
        if let Some(&lane) = self.lanes.get(&names) {
            return Ok(lane);
        }
        let queue = match self.queues.get(names.0) {
            Some(&queue) => queue,
            None => *self.queues.entry(names.0).or_insert(lanes::queue(hand.db, names.0)?),
        };
        let lane = match (is_new, line) {
            (true, Line::Place(_)) => {
                let lane = lanes::make_lane(hand.db, (queue, key), (names.2, &names.3), lanes::READY)?;
                self.filled.insert(lane, true);
                lane
            }
            _ => lanes::lane(hand.db, queue, key, names.2, &names.3)?,
        };
        self.lanes.insert(names, lane);
        Ok(lane)
    }

    /// The key's row, and whether it is new; if these limits are new to it, they are its newest.
    fn key(&mut self, hand: &mut Hand<'_>, name: &'a str, limits: &str) -> Result<(i64, bool), Fault> {
        let key = match self.keys.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(match lanes::key_sent(hand.db, name)? {
                Some((id, sent)) => Key { id, sent, is_new: false },
                None => {
                    let id = lanes::make_key(hand.db, name, limits)?;
                    Key { id, sent: limits.to_owned(), is_new: true }
                }
            }),
        };
        if !limits.is_empty() && key.sent != limits {
            let sql = "UPDATE keys SET sent = ?2 WHERE id = ?1 AND sent <> ?2 RETURNING latest";
            let latest: Option<bool> = hand
                .db
                .prepare_cached(sql)?
                .query_row(params![key.id, limits], |row| row.get(0))
                .optional()?;
            if latest == Some(true) {
                lanes::release_all(hand.db, key.id)?;
                hand.wake();
            }
            limits.clone_into(&mut key.sent);
        }
        Ok((key.id, key.is_new))
    }
}

/// The task that holds this dedupe id, if there is one; else `id` holds it from now on.
fn note(db: &Connection, dedupe: &Dedupe, id: i64, now: Tick) -> Result<Option<i64>, Fault> {
    let find = "SELECT task FROM dedupes WHERE name = ?1 AND until > ?2";
    let first =
        db.prepare_cached(find)?.query_row(params![dedupe.id, moment(now)], |row| row.get(0)).optional()?;
    if first.is_none() {
        let until = moment(now.after(dedupe.window));
        let sql = "INSERT INTO dedupes (name, task, until) VALUES (?1, ?2, ?3)
            ON CONFLICT (name) DO UPDATE SET task = excluded.task, until = excluded.until";
        db.prepare_cached(sql)?.execute(params![dedupe.id, id, until])?;
    }
    Ok(first)
}

/// Sends a dead task back to its line, as new.
pub(super) fn revive(hand: &mut Hand<'_>, id: TaskId) -> Result<bool, Fault> {
    let sql = "DELETE FROM dead WHERE id = ?1 RETURNING queue, key, priority, limits, weight, record";
    let row = hand.db.prepare_cached(sql)?.query_row([id.0], |row| {
        let names: (String, Option<String>, i16, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((names, row.get::<_, u32>(4)?, row.get::<_, Vec<u8>>(5)?))
    });
    let Some(((queue, key, priority, limits), weight, record)) = row.optional()? else { return Ok(false) };
    hand.db.prepare_cached("DELETE FROM cancels WHERE task = ?1")?.execute([id.0])?;
    let queue = lanes::queue(hand.db, &queue)?;
    let key = key.map_or(Ok(0), |name| lanes::key(hand.db, &name))?;
    let lane = lanes::lane(hand.db, queue, key, priority, &limits)?;
    let line = Line::Place(lanes::take_numbers(hand.db, 1)? + 1);
    put(hand.db, &Row { id: id.0, lane, line, attempt: 0, weight, good_until: None, record: &record })?;
    lanes::fill(hand.db, lane)?;
    hand.wake();
    Ok(true)
}
