//! Notes, on sheets: what is written together about tasks of one block, 64 by their numbers, is one row.
//!
//! Owns the way there and back, so that everybody else sees single notes in the order in which they were
//! written. Notes of many tasks come at once, and a row with its entries in two indexes for each of them costs
//! more than all else about it. A sheet says which notes there are; their bodies are in packs
//! ([`super::packs`]), of which any number of sheets may share one.

use std::sync::Arc;

use flowgate_core::Tick;
use tokio_postgres::Row;

use super::{
    connect::{Line, Postgres},
    packs::{self, Packs},
    rows::{stored, tick},
    shelf::Values,
};
use crate::{
    record::Unreadable,
    store::{NewNote, Note, NoteQuery, StoreError},
    task::TaskId,
};

/// Puts notes on sheets, and their bodies into packs. `$from` has `task`, `at` and `seat`, which says in what order
/// they were written; `$settings` is what the transaction is told. The packs are those of [`Packs`], as parameters, and are
/// stored `$when` there is anything.
macro_rules! put_on_sheets {
    ($settings:literal, $seats:literal, $bodies:literal, $when:literal, $from:literal) => {
        concat!(
            "numbered AS MATERIALIZED (SELECT nextval('flowgate.note_batches') AS batch",
            $settings,
            "), packed AS (INSERT INTO flowgate.packs (batch, seat, bodies) SELECT (SELECT batch FROM numbered), seat, bodies \
            FROM unnest(",
            $seats,
            "::int[], ",
            $bodies,
            "::bytea[]) AS pack (seat, bodies)",
            $when,
            "), \
            noted AS (INSERT INTO flowgate.sheets (batch, seat, block, seats, tasks, ats) \
            SELECT (SELECT batch FROM numbered), min(seat), task >> 6, array_agg(seat), array_agg(task), array_agg(at) FROM ",
            $from,
            " GROUP BY task >> 6)"
        )
    };
}
pub(super) use put_on_sheets;

/// A transaction of its own, whose commit nobody waits for: what is committed after it, the end of its tasks above all,
/// is on disk after it.
pub(super) const ADD_NOTES: &str = concat!(
    "WITH ",
    put_on_sheets!(
        " FROM set_config('synchronous_commit', 'off', true)",
        "$3",
        "$4",
        "",
        "(SELECT task, at, nr::int AS seat FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (task, at, \
            nr)) AS noted"
    ),
    " SELECT"
);

/// Notes before number `$1`, the newest `$2` of those that `$which` lets through. `$sheets` gives sheets of which each
/// has such a note, and of each how many are `newer`, unless it may be more than one. What was written together may be
/// on several sheets: so they are read as far as the end of such a batch. Bodies come last, so that no other is read: a
/// pack with the first of its notes, which stand together.
macro_rules! notes_on {
    ($sheets:literal, $which:literal) => {
        concat!(
            "SELECT id, task, at, found.bodies[place], found.seat - pack.seat, \
            CASE WHEN row_number() OVER (PARTITION BY batch, pack.seat ORDER BY id DESC) = 1 THEN pack.bodies END \
            FROM (SELECT (batch << 20) + line.seat AS id, batch, line.seat, line.task, line.at, place, bodies FROM (",
            $sheets,
            ") AS sheet CROSS JOIN LATERAL unnest(seats, tasks, ats) WITH ORDINALITY AS line (seat, task, at, place) \
            WHERE newer < $2::bigint AND (batch << 20) + line.seat < $1 AND ",
            $which,
            " ORDER BY 1 DESC LIMIT $2) AS found LEFT JOIN LATERAL (SELECT seat, bodies FROM packs WHERE found.bodies IS NULL \
            AND packs.batch = found.batch AND packs.seat <= found.seat ORDER BY packs.seat DESC LIMIT 1) AS pack ON \
            true ORDER BY id DESC"
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
    "SELECT *, 0 AS newer FROM sheets WHERE block = ANY($4) AND batch <= $1::bigint >> 20 AND EXISTS (SELECT FROM \
        unnest(seats, tasks) \
    AS line (seat, task) WHERE line.task = ANY($3) AND (batch << 20) + line.seat < $1) \
    ORDER BY batch DESC FETCH FIRST ($2::bigint) ROWS WITH TIES",
    "line.task = ANY($3)"
);

/// Notes of what is alive or a dead letter stay. Others are looked for up to the first batch that is not old. A sheet
/// that another server has just now is left to it: which of its lines stay is known of the sheet as it was.
const PRUNE: &str = "WITH old AS MATERIALIZED (SELECT batch, seat, cardinality(seats) AS lines, places FROM sheets \
    CROSS JOIN LATERAL (SELECT coalesce(array_agg(place), '{}') AS places \
    FROM unnest(tasks, ats) WITH ORDINALITY AS line (task, at, place) \
    WHERE line.at >= $1 OR EXISTS (SELECT FROM dead WHERE dead.id = line.task) \
    OR EXISTS (SELECT FROM tasks AS live WHERE live.id = line.task) \
    OR line.task IN (SELECT held.id FROM leases CROSS JOIN LATERAL unnest(ids) AS held (id) WHERE held.id <> ALL(done))) AS stay \
    WHERE batch <= coalesce((SELECT batch FROM sheets WHERE $1 <= ANY(ats) ORDER BY batch LIMIT 1), 9223372036854775807) \
    AND cardinality(places) < cardinality(seats) ORDER BY batch, seat LIMIT $2 FOR UPDATE OF sheets SKIP LOCKED), \
    emptied AS (DELETE FROM sheets USING old WHERE sheets.batch = old.batch AND sheets.seat = old.seat AND places = '{}'), \
    thinned AS (UPDATE sheets SET seat = (SELECT min(seats[place]) FROM unnest(places) AS place), \
    seats = array(SELECT seats[place] FROM unnest(places) AS place), tasks = array(SELECT tasks[place] FROM \
    unnest(places) AS place), \
    ats = array(SELECT ats[place] FROM unnest(places) AS place), \
    bodies = CASE WHEN bodies IS NOT NULL THEN array(SELECT bodies[place] FROM unnest(places) AS place) END FROM old \
    WHERE sheets.batch = old.batch AND sheets.seat = old.seat AND places <> '{}') \
    SELECT coalesce(sum(lines - cardinality(places)), 0)::bigint, coalesce(array_agg(DISTINCT batch), '{}') FROM old";
/// Packs of batches that have no sheet any more.
const PRUNE_PACKS: &str = "DELETE FROM packs WHERE batch = ANY($1) \
    AND NOT EXISTS (SELECT FROM sheets WHERE sheets.batch = packs.batch)";
/// Packs that are older than all sheets: of one who was killed after it had removed these.
const PRUNE_STRAY_PACKS: &str = "DELETE FROM packs WHERE batch IN (SELECT batch FROM packs \
    WHERE batch < (SELECT coalesce(min(batch), 9223372036854775807) FROM sheets) ORDER BY batch LIMIT $1)";
/// At most so many sheets are looked through at once.
const PRUNED: i64 = 200;

impl Postgres {
    pub(super) async fn add_notes(&self, notes: Arc<[NewNote]>) -> Result<(), StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let tasks: Vec<i64> = notes.iter().map(|note| note.task.0).collect();
            let at: Vec<i64> = notes.iter().map(|note| stored(note.at)).collect();
            let packs = Packs::of(notes.iter().map(|note| note.body.as_slice()));
            session.query(ADD_NOTES, [&tasks, &at, &packs.seats, &packs.bodies]).await.map(drop)
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
        let mut pack = Vec::new();
        rows.iter().map(|row| note(row, &mut pack)).collect()
    }

    /// Removes some of the notes that are old, and says how many.
    pub(super) async fn prune_notes(&self, before: Tick) -> Result<u64, StoreError> {
        let rows = self.rows(PRUNE, vec![Box::new(stored(before)), Box::new(PRUNED)]).await?;
        let Some(row) = rows.first() else { return Ok(0) };
        let (removed, batches): (i64, Vec<i64>) = (row.get(0), row.get(1));
        if removed > 0 {
            // A statement of its own: it sees what others removed of the same batch meanwhile.
            self.rows(PRUNE_PACKS, vec![Box::new(batches)]).await?;
            self.rows(PRUNE_STRAY_PACKS, vec![Box::new(PRUNED)]).await?;
        }
        Ok(removed.unsigned_abs())
    }
}

/// A note, with its body from the sheet or from the pack, which the first of those in it brings along.
fn note(row: &Row, pack: &mut Vec<Vec<u8>>) -> Result<Note, StoreError> {
    if let Some(bytes) = row.get::<_, Option<&[u8]>>(5) {
        *pack = packs::read(bytes)?;
    }
    let body = match row.get::<_, Option<i32>>(4) {
        Some(place) => pack.get_mut(place as usize).map(std::mem::take),
        None => row.get(3),
    };
    let body = body.ok_or(Unreadable { at: 0 })?;
    Ok(Note { id: row.get(0), task: TaskId(row.get(1)), at: tick(row.get(2)), body })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flowgate_testkit::postgres::Postgres as Server;

    use super::*;
    use crate::{
        store::{Shelf as _, Store as _},
        task::NewTask,
    };

    async fn count(store: &Postgres, table: &str) -> i64 {
        let rows = store.rows(format!("SELECT count(*) FROM {table}"), Vec::new()).await.expect("a count");
        rows[0].get(0)
    }

    #[tokio::test]
    async fn a_pack_goes_with_the_last_sheet_of_its_batch() {
        // Seen to fail: without either of the statements that remove packs.
        let url = Server::shared().create_database("packs").expect("a database");
        let store = Postgres::connect(&url).await.expect("a store");
        let note = |number: i64| NewNote {
            task: TaskId(1000 + number),
            at: Tick::from_nanos(number.unsigned_abs()),
            body: format!("note {number}").into_bytes(),
        };
        let stale = "INSERT INTO packs VALUES (0, 1, '\\x01')";
        store.rows(stale, Vec::new()).await.expect("what one left who was killed between two statements");
        let task = store.send(vec![NewTask::new("one", Vec::new())]).await.expect("sent")[0].id;
        store.write_notes([NewNote { task, ..note(0) }].into()).await.expect("a note of one that lives");
        store.write_notes((1..=100).map(note).collect()).await.expect("written");
        store.write_notes((101..=103).map(note).collect()).await.expect("written");
        assert_eq!((count(&store, "packs").await, count(&store, "sheets").await), (5, 5));
        assert_eq!(store.prune_notes(Tick::from_nanos(70)).await.expect("pruned"), 69);
        let left = (count(&store, "packs").await, count(&store, "sheets").await);
        assert_eq!(left, (4, 4), "two sheets need both packs");
        let all = NoteQuery { most: 200, ..NoteQuery::default() };
        let told = store.notes(all).await.expect("notes");
        let bodies: Vec<Vec<u8>> = told.into_iter().map(|told| told.body).collect();
        let left: Vec<Vec<u8>> = (70..=103).rev().chain([0]).map(|left| note(left).body).collect();
        assert_eq!(bodies, left);
        assert_eq!(store.prune_notes(Tick::from_nanos(102)).await.expect("pruned"), 32);
        assert_eq!((count(&store, "packs").await, count(&store, "sheets").await), (2, 2));
    }

    #[tokio::test]
    async fn a_sheet_that_another_server_prunes_is_left_to_it() {
        // Seen to fail: without `SKIP LOCKED` it was waited for, and then thinned by what was known of it before.
        let url = Server::shared().create_database("pruned").expect("a database");
        let store = Postgres::connect(&url).await.expect("a store");
        let note = |task: i64| NewNote { task: TaskId(task), at: Tick::ZERO, body: Vec::new() };
        store.write_notes([note(1000), note(2000)].into()).await.expect("two sheets");
        let (other, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("another");
        tokio::spawn(connection);
        let lock = "BEGIN; SELECT FROM flowgate.sheets WHERE tasks = '{1000}' FOR UPDATE";
        other.batch_execute(lock).await.expect("it has one of them");
        let pruned = tokio::time::timeout(Duration::from_secs(20), store.prune_notes(Tick::from_nanos(9)));
        assert_eq!(pruned.await.expect("nobody is waited for").expect("pruned"), 1);
        other.batch_execute("ROLLBACK").await.expect("it lets go");
        assert_eq!(store.prune_notes(Tick::from_nanos(9)).await.expect("pruned"), 1);
        assert_eq!((count(&store, "packs").await, count(&store, "sheets").await), (0, 0));
    }
}
