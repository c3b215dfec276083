//! The mark of a lane: no task stands in it before that place, nor ever will, so claims begin there.
//!
//! While a transaction stays open anywhere in the database, the server keeps the rows that claims have taken,
//! and a claim that begins at the head of its lane steps over all of them. A mark is moved up now and then,
//! many tasks at a time, by a transaction that has the lane's row alone; a send shares that row first, and
//! puts its task at the mark or behind. A mark only ever goes up: so each process may go by the marks it
//! knows, and reads no row for it that would leave versions behind in turn.
//!
//! The marks are those of one server. A server that takes its place after a failure may have lost the end of
//! the story, and gives the same numbers again: so a process forgets all marks with every new connection.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    connect::{Lease, Shared},
    session::flight,
};
use crate::store::StoreError;

/// After so many tasks, the marks are looked at of lanes that gave so many of them: at most so many lanes. Where the
/// code is tested they are moved after every turn, so that whatever is put before one is lost at once.
const EVERY: u32 = if cfg!(debug_assertions) { 1 } else { 1_024 };
const FROM_ONE: u32 = if cfg!(debug_assertions) { 1 } else { 16 };
const MOST: usize = 512;
/// More lanes than these are forgotten, all at once: a mark that stays where it is costs time, and no more.
const REMEMBERED: usize = 100_000;

/// A sender has not got its numbers yet, or it has stored what it has to store.
const OWN_LANES: &str = "SELECT id FROM lanes WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED";
/// Just before the first that stands there, so that what goes back to the front comes before it; tasks at one place stand in the
/// order of their numbers. In a lane with nothing in it: at the last number anybody got.
const MOVE_UP: &str = "INSERT INTO marks (lane, low) SELECT told.lane, coalesce(\
    (SELECT place - 1 FROM tasks WHERE tasks.lane = told.lane AND place >= told.low ORDER BY place LIMIT 1), \
    (SELECT last_value FROM task_ids)) FROM unnest($1::bigint[], $2::bigint[]) AS told (lane, low) \
    WHERE NOT EXISTS (SELECT FROM workers WHERE NOT minds_marks) \
    ON CONFLICT (lane) DO UPDATE SET low = greatest(marks.low, excluded.low) RETURNING lane, low";

pub(super) const STATEMENTS: [&str; 2] = [OWN_LANES, MOVE_UP];

/// The marks that this process knows. One that has been moved since is as true as it was.
#[derive(Default)]
pub(super) struct Marks(Mutex<Known>);

#[derive(Default)]
struct Known {
    lanes: HashMap<i64, Mark>,
    /// How many tasks were taken since marks were moved.
    since: u32,
    /// How often all of it was forgotten.
    times: u64,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    low: i64,
    /// How many were taken since it was moved.
    taken: u32,
}

impl Marks {
    /// From where on these lanes are to be searched.
    pub(super) fn of(&self, lanes: &[i64]) -> Vec<i64> {
        let known = self.known();
        lanes.iter().map(|lane| known.lanes.get(lane).map_or(0, |mark| mark.low)).collect()
    }

    /// One was taken of each of these.
    pub(super) fn add(&self, lanes: impl Iterator<Item = i64>) {
        let mut known = self.known();
        if known.lanes.len() >= REMEMBERED {
            known.lanes.clear();
        }
        for lane in lanes {
            known.lanes.entry(lane).or_default().taken += 1;
            known.since += 1;
        }
    }

    /// The lanes whose marks should be moved now.
    pub(super) fn due(&self) -> Vec<i64> {
        let mut known = self.known();
        if known.since < EVERY {
            return Vec::new();
        }
        known.since = 0;
        let due = known.lanes.iter().filter(|(_, mark)| mark.taken >= FROM_ONE);
        due.map(|(lane, _)| *lane).take(MOST).collect()
    }

    /// The marks of these lanes are here by now, unless all was forgotten since.
    fn moved(&self, times: u64, marks: impl Iterator<Item = (i64, i64)>) {
        let mut known = self.known();
        if known.times == times {
            known.lanes.extend(marks.map(|(lane, low)| (lane, Mark { low, taken: 0 })));
        }
    }

    fn times(&self) -> u64 {
        self.known().times
    }

    /// A connection was made, to whichever server: nothing is known of it.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.lanes.clear();
        known.times += 1;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins a transaction that nobody waits for, which has those of these lanes alone that are to be had; and their marks.
pub(super) async fn own(
    shared: &Shared,
    session: &mut Lease,
    find: &'static str,
    lanes: &[i64],
) -> Result<(Vec<i64>, Vec<i64>), StoreError> {
    session.begin();
    let (_, own) =
        flight!(session.run("BEGIN; SET LOCAL synchronous_commit TO off"), session.query(find, [&lanes]))?;
    let own: Vec<i64> = own.iter().map(|row| row.get(0)).collect();
    let lows = shared.turning.marks.of(&own);
    Ok((own, lows))
}

/// Moves the marks of those lanes that no sender is busy with. The others stay due.
pub(super) async fn move_up(shared: &Shared, session: &mut Lease, lanes: &[i64]) -> Result<(), StoreError> {
    let times = shared.turning.marks.times();
    let (own, lows) = own(shared, session, OWN_LANES, lanes).await?;
    let (moved, _) = flight!(session.query(MOVE_UP, [&own, &lows]), session.run("COMMIT"))?;
    session.end();
    shared.turning.marks.moved(times, moved.iter().map(|row| (row.get("lane"), row.get("low"))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{EVERY, FROM_ONE, Marks};

    // Seen to fail: without `since` in `due`, the second look gave lane 7 again; with marks that stay due, so did the third.
    #[test]
    fn marks_are_moved_now_and_then_where_something_was_taken() {
        let marks = Marks::default();
        marks.add((0..EVERY.max(FROM_ONE)).map(|_| 7));
        assert_eq!(marks.due(), [7]);
        assert_eq!(marks.due(), [0; 0], "it was just done");
        marks.moved(0, [(7, 40)].into_iter());
        assert_eq!(marks.of(&[6, 7]), [0, 40]);
        marks.add((0..EVERY.max(FROM_ONE)).map(|_| 8));
        assert_eq!(marks.due(), [8], "what was moved begins anew");
    }

    #[test]
    fn what_was_moved_before_all_was_forgotten_is_not_remembered() {
        let marks = Marks::default();
        marks.moved(0, [(7, 40)].into_iter());
        marks.forget();
        marks.moved(0, [(8, 40)].into_iter());
        assert_eq!(marks.of(&[7, 8]), [0, 0]);
    }
}
