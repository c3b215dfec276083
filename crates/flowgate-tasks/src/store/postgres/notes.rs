//! Notes, on sheets: what is written together about tasks of one block, 64 by their numbers, is one row.
//!
//! Owns the way there and back, so that everybody else sees single notes in the order in which they were
//! written. Those of many tasks come at once, and a row with its entries in two indexes for each of them
//! costs more than all else about it.

use std::sync::Arc;

use flowgate_core::Tick;
use tokio_postgres::Row;

use super::{
    connect::{Line, Postgres},
    rows::{stored, tick},
    shelf::Values,
};
use crate::{
    store::{NewNote, Note, NoteQuery, StoreError},
    task::TaskId,
};

/// The statement that puts notes on sheets. `$from` has `task`, `at`, `body` and `seat`, which says in what order they were written. A
/// large one has a sheet for itself: whoever reads another has not to read it as well.
macro_rules! put_on_sheets {
    ($from:literal) => {
        concat!(
            "INSERT INTO flowgate.sheets (batch, seat, block, seats, tasks, ats, bodies) \
            SELECT (SELECT nextval('flowgate.note_batches')), min(seat), task >> 6, array_agg(seat), array_agg(task), \
            array_agg(at), array_agg(body) FROM ",
            $from,
            " GROUP BY task >> 6, CASE WHEN length(body) > 4096 THEN seat END"
        )
    };
}
pub(super) use put_on_sheets;

/// A transaction of its own, whose commit nobody waits for: what is committed after it, the end of its tasks above all, is on disk
/// after it.
pub(super) const ADD_NOTES: &str = put_on_sheets!(
    "(SELECT task, at, body, nr::int AS seat FROM set_config('synchronous_commit', 'off', true), \
    unnest($1::bigint[], $2::bigint[], $3::bytea[]) WITH ORDINALITY AS asked (task, at, body, nr)) AS noted"
);

/// Notes before number `$1`, the newest `$2` of those that `$which` lets through. `$sheets` gives sheets of which each has such a note,
/// and of each how many are `newer`, unless it may be more than one. What was written together may be on several sheets: so they are
/// read as far as the end of such a batch. A body is taken from its sheet at last: until then a large one is not read.
macro_rules! notes_on {
    ($sheets:literal, $which:literal) => {
        concat!(
            "SELECT id, task, at, bodies[place] FROM (SELECT (batch << 20) + line.seat AS id, line.task, line.at, place, bodies FROM (",
            $sheets,
            ") AS sheet CROSS JOIN LATERAL unnest(seats, tasks, ats) WITH ORDINALITY AS line (seat, task, at, place) \
            WHERE newer < $2::bigint AND (batch << 20) + line.seat < $1 AND ",
            $which,
            " ORDER BY 1 DESC LIMIT $2) AS found ORDER BY id DESC"
        )
    };
}

const ALL: &str = notes_on!(
    "SELECT *, coalesce(sum(CASE WHEN batch < $1::bigint >> 20 THEN cardinality(seats) ELSE 0 END) \
    OVER (ORDER BY batch DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS newer \
    FROM (SELECT * FROM sheets WHERE (batch, seat) < ($1::bigint >> 20, ($1::bigint & 1048575)::int) \
    ORDER BY batch DESC FETCH FIRST ($2::bigint) ROWS WITH TIES) AS newest",
    "true"
);
const SOME: &str = notes_on!(
    "SELECT *, 0 AS newer FROM sheets WHERE block = ANY($4) AND batch <= $1::bigint >> 20 AND EXISTS (SELECT FROM unnest(seats, tasks) \
    AS line (seat, task) WHERE line.task = ANY($3) AND (batch << 20) + line.seat < $1) \
    ORDER BY batch DESC FETCH FIRST ($2::bigint) ROWS WITH TIES",
    "line.task = ANY($3)"
);

/// Notes of what is alive or a dead letter stay. Others are looked for up to the first batch that is not old.
const PRUNE: &str = "WITH old AS MATERIALIZED (SELECT batch, seat, cardinality(seats) AS lines, places FROM sheets \
    CROSS JOIN LATERAL (SELECT coalesce(array_agg(place), '{}') AS places \
    FROM unnest(tasks, ats) WITH ORDINALITY AS line (task, at, place) \
    WHERE line.at >= $1 OR EXISTS (SELECT FROM dead WHERE dead.id = line.task) \
    OR EXISTS (SELECT FROM tasks AS live WHERE live.id = line.task) \
    OR line.task IN (SELECT held.id FROM leases CROSS JOIN LATERAL unnest(ids) AS held (id) WHERE held.id <> ALL(done))) AS stay \
    WHERE batch <= coalesce((SELECT batch FROM sheets WHERE $1 <= ANY(ats) ORDER BY batch LIMIT 1), 9223372036854775807) \
    AND cardinality(places) < cardinality(seats) ORDER BY batch, seat LIMIT $2), \
    emptied AS (DELETE FROM sheets USING old WHERE sheets.batch = old.batch AND sheets.seat = old.seat AND places = '{}'), \
    thinned AS (UPDATE sheets SET seat = (SELECT min(seats[place]) FROM unnest(places) AS place), \
    seats = array(SELECT seats[place] FROM unnest(places) AS place), tasks = array(SELECT tasks[place] FROM unnest(places) AS place), \
    ats = array(SELECT ats[place] FROM unnest(places) AS place), bodies = array(SELECT bodies[place] FROM unnest(places) AS place) \
    FROM old WHERE sheets.batch = old.batch AND sheets.seat = old.seat AND places <> '{}') \
    SELECT coalesce(sum(lines - cardinality(places)), 0)::bigint FROM old";
/// At most so many sheets are looked through at once.
const PRUNED: i64 = 200;

impl Postgres {
    pub(super) async fn add_notes(&self, notes: Arc<[NewNote]>) -> Result<(), StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let tasks: Vec<i64> = notes.iter().map(|note| note.task.0).collect();
            let at: Vec<i64> = notes.iter().map(|note| stored(note.at)).collect();
            let bodies: Vec<&[u8]> = notes.iter().map(|note| note.body.as_slice()).collect();
            session.query(ADD_NOTES, [&tasks, &at, &bodies]).await.map(drop)
        })
        .await
    }

    pub(super) async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>, StoreError> {
        let mut values: Values =
            vec![Box::new(query.before.unwrap_or(i64::MAX)), Box::new(i64::from(query.most))];
        let is_some = !query.tasks.is_empty();
        if is_some {
            values.push(Box::new(query.tasks.iter().map(|task| task.0).collect::<Vec<i64>>()));
            values.push(Box::new(query.tasks.iter().map(|task| task.0 >> 6).collect::<Vec<i64>>()));
        }
        let rows = self.rows(if is_some { SOME } else { ALL }, values).await?;
        let note = |row: &Row| Note {
            id: row.get(0),
            task: TaskId(row.get(1)),
            at: tick(row.get(2)),
            body: row.get(3),
        };
        Ok(rows.iter().map(note).collect())
    }

    /// Removes some of the notes that are old, and says how many.
    pub(super) async fn prune_notes(&self, before: Tick) -> Result<u64, StoreError> {
        let rows = self.rows(PRUNE, vec![Box::new(stored(before)), Box::new(PRUNED)]).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0).unsigned_abs()))
    }
}
