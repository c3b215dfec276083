//! Which lanes a turn looks at.
//!
//! Owns the order in which lanes come up: by queue priority and lane priority, and within one rank from where the last turn
//! stopped. What it reads does not depend on how many tasks or lanes wait.

use std::collections::HashMap;

use flowgate_core::Tick;
use rusqlite::{Connection, Row};

use super::error::Fault;
use crate::{
    SERVER_QUEUE,
    clock::Look,
    plan::{Candidate, Counter, Key, Queue, Scene},
    store::Want,
};

/// At most so many lanes are looked at in a turn, and twice as many as it wants tasks: some may be held.
const MOST: u32 = 512;
const LEAST: u32 = 8;

/// Where the last turn stopped, in each rank of each queue.
#[derive(Default)]
pub(super) struct Cursors {
    turns: usize,
    lanes: HashMap<(i64, i16), i64>,
    /// How far upkeep came in looking for keys to forget.
    pub(super) keys: i64,
    /// What time it was when upkeep looked last.
    pub(super) seen: Option<Look>,
}

impl Cursors {
    /// This lane was served: the next one of its rank comes up first.
    pub(super) fn served(&mut self, lane: &Candidate) {
        self.lanes.insert((lane.queue, lane.priority), lane.id);
    }
}

/// Everything a turn decides by, and whether there were more lanes than it looks at.
pub(super) fn load(
    db: &Connection,
    cursors: &mut Cursors,
    now: Tick,
    served: &[i64],
    want: Want,
) -> Result<(Scene, bool), Fault> {
    let cluster =
        db.prepare_cached("SELECT cap, in_use FROM cluster")?.query_row([], |row| counter(row, 0, 1))?;
    let mut scene =
        Scene { now, budget: want.slots, cluster, queues: Vec::new(), keys: Vec::new(), lanes: Vec::new() };
    if has_none(&cluster) || want.slots == 0 {
        return Ok((scene, false));
    }
    scene.queues = queues(db, served, want.per_queue)?;
    cursors.turns = cursors.turns.wrapping_add(1);
    let most = want.slots.saturating_mul(2).clamp(LEAST, MOST) as usize;
    let mut loader = Loader { db, cursors, keys: HashMap::new(), scene: &mut scene, most };
    let has_more = loader.load()?;
    Ok((scene, has_more))
}

fn has_none(counter: &Counter) -> bool {
    counter.cap.is_some_and(|cap| counter.in_use >= cap)
}

/// A count that nobody else can change: there is one writer.
fn counter(row: &Row<'_>, cap: usize, in_use: usize) -> rusqlite::Result<Counter> {
    Ok(Counter { cap: row.get(cap)?, in_use: row.get(in_use)?, freed: 0, is_locked: true, taken: 0 })
}

/// The queues that the worker serves and that have room, in order of their priority.
fn queues(db: &Connection, served: &[i64], quota: u32) -> Result<Vec<Queue>, Fault> {
    let sql = "SELECT id, priority, max, in_use, name FROM queues WHERE NOT paused ORDER BY priority, id";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        let counter = counter(row, 2, 3)?;
        let queue = Queue { id: row.get(0)?, priority: row.get(1)?, is_paused: false, counter, quota };
        let is_served = match served {
            [] => row.get_ref(4)?.as_str()? != SERVER_QUEUE,
            served => served.contains(&queue.id),
        };
        Ok(Some(queue).filter(|queue| is_served && !has_none(&queue.counter)))
    })?;
    Ok(rows.filter_map(Result::transpose).collect::<Result<Vec<Queue>, _>>()?)
}

struct Loader<'a> {
    db: &'a Connection,
    cursors: &'a Cursors,
    /// The place of each key in the scene.
    keys: HashMap<i64, usize>,
    scene: &'a mut Scene,
    most: usize,
}

impl Loader<'_> {
    fn load(&mut self) -> Result<bool, Fault> {
        let queues: Vec<(i32, i64)> =
            self.scene.queues.iter().map(|queue| (queue.priority, queue.id)).collect();
        let mut rest = queues.as_slice();
        while let Some(&(priority, _)) = rest.first() {
            let equals = rest.iter().take_while(|queue| queue.0 == priority).count();
            let (rank, lower) = rest.split_at(equals);
            let from = self.scene.lanes.len();
            for at in 0..rank.len() {
                let (_, queue) = rank[(at + self.cursors.turns) % rank.len()];
                self.queue(queue, self.most - from)?;
            }
            self.scene.lanes[from..].sort_by_key(|lane| lane.priority);
            if self.scene.lanes.len() >= self.most {
                self.scene.lanes.truncate(self.most);
                return Ok(true);
            }
            rest = lower;
        }
        Ok(false)
    }

    /// Up to `room` lanes of a queue.
    fn queue(&mut self, queue: i64, room: usize) -> Result<(), Fault> {
        let goal = self.scene.lanes.len() + room;
        let mut above = i64::MIN;
        let next = "SELECT priority FROM lanes WHERE state = 1 AND queue = ?1 AND priority > ?2
            ORDER BY priority LIMIT 1";
        while self.scene.lanes.len() < goal {
            let mut statement = self.db.prepare_cached(next)?;
            let mut rows = statement.query([queue, above])?;
            let Some(row) = rows.next()? else { return Ok(()) };
            let priority: i16 = row.get(0)?;
            above = i64::from(priority);
            let cursor = self.cursors.lanes.get(&(queue, priority)).copied().unwrap_or(0);
            self.rank(queue, priority, (cursor, i64::MAX), goal)?;
            if cursor > 0 {
                self.rank(queue, priority, (0, cursor), goal)?;
            }
        }
        Ok(())
    }

    fn rank(
        &mut self,
        queue: i64,
        priority: i16,
        (above, upto): (i64, i64),
        goal: usize,
    ) -> Result<(), Fault> {
        let sql = "SELECT lanes.id, lanes.key, lanes.limits,
                keys.in_use, keys.paused, keys.pinned, keys.sent, keys.latest, keys.rates
            FROM lanes LEFT JOIN keys ON keys.id = lanes.key
            WHERE lanes.state = 1 AND lanes.queue = ?1 AND lanes.priority = ?2 AND lanes.id > ?3 AND lanes.id <= ?4
            ORDER BY lanes.id LIMIT ?5";
        let left = goal.saturating_sub(self.scene.lanes.len()) as i64;
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query((queue, priority, above, upto, left))?;
        while let Some(row) = rows.next()? {
            let key = match row.get(1)? {
                0 => None,
                key => Some(self.key(key, row)?),
            };
            let limits = row.get_ref(2)?.as_str().unwrap_or_default();
            self.scene.lanes.push(Candidate::read(row.get(0)?, queue, key, priority, limits));
        }
        Ok(())
    }

    fn key(&mut self, id: i64, row: &Row<'_>) -> Result<usize, Fault> {
        if let Some(&place) = self.keys.get(&id) {
            return Ok(place);
        }
        let place = self.scene.keys.len();
        self.scene.keys.push(read_key(id, row)?);
        self.keys.insert(id, place);
        Ok(place)
    }
}

/// A key's row, from its fourth column on.
pub(super) fn read_key(id: i64, row: &Row<'_>) -> Result<Key, Fault> {
    let pinned = row.get_ref(5)?.as_str_or_null().unwrap_or(Some("not a text"));
    let sent = row.get_ref(6)?.as_str().unwrap_or("not a text");
    let rates = row.get_ref(8)?.as_str().unwrap_or_default();
    Ok(Key::read(id, row.get(3)?, row.get(4)?, (pinned, sent, row.get(7)?), rates))
}
