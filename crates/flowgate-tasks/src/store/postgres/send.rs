//! Tasks come in: many in one transaction, and that in one round trip.
//!
//! A sender shares the rows of its lanes until it commits, and a lane is made idle only by one who has its row alone: so no
//! lane is left idle with a task in it.

use std::sync::Arc;

use flowgate_core::OptionError;
use tokio_postgres::Transaction;

use super::{
    connect::{Lease, Line, Postgres, Shared},
    lanes::{self, LaneName},
    runs,
    session::{Params, failed, flight},
};
use crate::{
    store::{Sent, StoreError, Wake},
    task::{NewTask, TaskId, When},
};

/// Shares the lanes' rows until the end of the transaction.
pub(super) const SHARE_LANES: &str =
    "SELECT FROM flowgate.lanes WHERE id = ANY($1) ORDER BY id FOR KEY SHARE";

/// Makes idle lanes ready and wakes nobody: what will stand in them is not there yet.
const OPEN_LANES: &str = "UPDATE lanes SET state = 1 WHERE id = ANY($1) AND state = 0";

/// Makes idle lanes ready, and wakes the workers if there were any.
pub(super) const READY_LANES: &str = "WITH idle AS (SELECT id FROM lanes WHERE id = ANY($1) AND state = 0 \
    ORDER BY id FOR NO KEY UPDATE), \
    woken AS (UPDATE lanes SET state = 1 FROM idle WHERE lanes.id = idle.id AND lanes.state = 0 RETURNING lanes.id) \
    SELECT pg_notify('flowgate', 'w') FROM woken LIMIT 1";

/// The same for what is stored by this process, which is told who it is: it need not be told in turn.
const READY_SENT: &str = "WITH idle AS (SELECT id FROM lanes WHERE id = ANY($1) AND state = 0 \
    ORDER BY id FOR NO KEY UPDATE), \
    woken AS (UPDATE lanes SET state = 1 FROM idle WHERE lanes.id = idle.id AND lanes.state = 0 RETURNING lanes.id) \
    SELECT pg_notify('flowgate', 'w' || $2::text) FROM woken LIMIT 1";

/// Tells those who keep up that something is due one day.
pub(super) const DELAYED: &str = "SELECT pg_notify('flowgate', 'd')";

/// Lanes that get a task of more than one slot.
const HEAVY_LANES: &str = "UPDATE lanes SET heavy = true WHERE id = ANY($1) AND NOT heavy";

/// A lane that is gone leaves a null, which is refused: then nothing is stored. A number from before its lane was shared may be before
/// the lane's mark.
const ADD_TASKS: &str = "WITH told AS MATERIALIZED (\
    SELECT coalesce(asked.id, nextval('flowgate.task_ids')) AS id, lanes.id AS lane, asked.id AS named, weight, record, note, noted_at, now, \
    CASE WHEN due_from_now THEN now + due ELSE due END AS due, \
    CASE WHEN good_from_now THEN now + good ELSE good END AS good \
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::bool[], $6::bigint[], $7::bool[], $8::bytea[], $9::bytea[], $10::bigint[]) \
    WITH ORDINALITY AS asked (id, lane, weight, due, due_from_now, good, good_from_now, record, note, noted_at, nr) \
    CROSS JOIN (SELECT flowgate.now_ns($11) AS now) AS clock \
    LEFT JOIN flowgate.lanes ON lanes.id = asked.lane ORDER BY nr OFFSET 0), \
    noted AS (INSERT INTO flowgate.notes (task, at, body) SELECT id, noted_at, note FROM told WHERE note IS NOT NULL) \
    INSERT INTO flowgate.tasks (id, lane, place, attempt, weight, due_at, good_until, record) \
    SELECT id, lane, CASE WHEN due IS NULL OR due <= now THEN \
    greatest(id, CASE WHEN named IS NOT NULL THEN (SELECT low FROM flowgate.marks WHERE marks.lane = told.lane) END) END, 0, weight, \
    CASE WHEN due > now THEN due END, good, record FROM told RETURNING id";

pub(super) const REMOVE_DEAD: &str = "DELETE FROM dead WHERE id = $1 RETURNING id";

/// At the end of its line, as new; unless that lane is gone.
pub(super) const ADD_REVIVED: &str = "INSERT INTO tasks (id, lane, place, attempt, weight, record) \
    SELECT $1, id, nextval('task_ids'), 0, $3, $4 FROM lanes WHERE id = $2 RETURNING id";

/// Whoever had the keys may have said of their lanes that they are held. A statement sees what was there when it began, so
/// the keys are waited for by one of its own, before the one that looks at the lanes.
const LOCK_SENT: &str = "SELECT FROM keys JOIN unnest($1::text[], $2::text[]) AS asked (name, limits) ON keys.name = asked.name \
    WHERE keys.sent <> asked.limits ORDER BY keys.id FOR NO KEY UPDATE OF keys";

/// The newest limits sent for each key; where these govern, everything that waits is looked at anew.
const SENT_LIMITS: &str = "WITH newest AS (SELECT keys.id, asked.limits FROM keys \
    JOIN unnest($1::text[], $2::text[]) AS asked (name, limits) ON keys.name = asked.name \
    WHERE keys.sent <> asked.limits ORDER BY keys.id FOR NO KEY UPDATE OF keys), \
    changed AS (UPDATE keys SET sent = newest.limits FROM newest WHERE keys.id = newest.id RETURNING keys.id, latest) \
    UPDATE lanes SET state = 1, wake_at = NULL FROM changed \
    WHERE lanes.key = changed.id AND changed.latest AND lanes.state IN (2, 3)";

/// Remembers dedupe ids, unless they are remembered already.
const CLAIM_NAMES: &str = "INSERT INTO dedupes (name, task, until) \
    SELECT name, nextval('task_ids'), now_ns($3) + lasting FROM unnest($1::text[], $2::bigint[]) AS asked (name, lasting) \
    ORDER BY name \
    ON CONFLICT (name) DO UPDATE SET task = excluded.task, until = excluded.until \
    WHERE dedupes.until <= now_ns($3) RETURNING name, task";
const NAMED: &str = "SELECT name, task FROM dedupes WHERE name = ANY($1)";

pub(super) const STATEMENTS: &[&str] = &[
    lanes::STATEMENTS[0],
    lanes::STATEMENTS[1],
    lanes::STATEMENTS[2],
    lanes::STATEMENTS[3],
    SHARE_LANES,
    READY_LANES,
    READY_SENT,
    OPEN_LANES,
    DELAYED,
    HEAVY_LANES,
    ADD_TASKS,
    LOCK_SENT,
    SENT_LIMITS,
    CLAIM_NAMES,
    NAMED,
    REMOVE_DEAD,
    ADD_REVIVED,
    runs::START,
    runs::TAKEN,
    runs::CHANGE,
    runs::STOOD,
    runs::STEPS_OF,
];

impl Postgres {
    pub(super) async fn send_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Sent>, StoreError> {
        tasks.iter().try_for_each(NewTask::check)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        self.job(Line::Sends, move |shared, session| async move { send(&shared, session, &tasks).await })
            .await
    }
}

impl Postgres {
    /// Stores tasks in a transaction of yours, on a connection of yours to the same database: they exist if it commits, and from
    /// then on. A dedupe id is refused here: whether the task is stored is for the transaction to decide.
    ///
    /// The transaction shares the lanes' rows with other senders and keeps nobody waiting, however long it takes.
    ///
    /// # Cancel safety
    /// Dropped, some of the tasks may be in the transaction: roll it back.
    pub async fn send_in(
        &self,
        transaction: &Transaction<'_>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Sent>, StoreError> {
        tasks.iter().try_for_each(NewTask::check)?;
        if let Some(dedupe) = tasks.iter().find_map(|task| task.dedupe.as_ref()) {
            let accepted = "no dedupe id for a task that is sent in a transaction of yours";
            return Err(OptionError::new("dedupe", format_args!("{:?}", dedupe.id), accepted).into());
        }
        loop {
            let names: Vec<LaneName> = tasks.iter().map(LaneName::of).collect();
            let lanes = self.job(Line::Sends, move |shared, session| async move {
                shared.lanes.resolve(&session, &names).await
            });
            let columns = Columns::of(&tasks, &lanes.await?, &vec![None; tasks.len()]);
            let asked = columns.all_lanes.clone();
            let shared =
                transaction.query(SHARE_LANES, &[&asked]).await.map_err(failed("shared its lanes"))?;
            if shared.len() < asked.len() {
                // One was swept away, being empty: it is made again.
                self.shared.lanes.forget();
                continue;
            }
            let heavy = columns.heavy_lanes.clone();
            // Now nobody can make them idle; and they are made ready here and not there, for whoever wants them ready as well
            // would have to wait for that transaction.
            self.job(Line::Sends, move |_, session| async move {
                session.query(OPEN_LANES, [&asked]).await?;
                session.query_if(!heavy.is_empty(), HEAVY_LANES, [&heavy]).await
            })
            .await?;
            return columns.add_in(transaction, self.shared.told_time()).await;
        }
    }
}

async fn send(shared: &Arc<Shared>, mut session: Lease, tasks: &[NewTask]) -> Result<Vec<Sent>, StoreError> {
    let names: Vec<LaneName> = tasks.iter().map(LaneName::of).collect();
    loop {
        let lanes = shared.lanes.resolve(&session, &names).await?;
        session.begin();
        match store(shared, &session, tasks, &lanes).await {
            Ok(sent) => {
                session.end();
                return Ok(sent);
            }
            Err(error) => {
                session.roll_back().await;
                if !lost_a_lane(&error) {
                    return Err(error);
                }
                shared.lanes.forget();
            }
        }
    }
}

/// A lane that was known had been swept away, being empty: 23502 is the null it left.
pub(super) fn lost_a_lane(error: &StoreError) -> bool {
    matches!(error, StoreError::Database { why, .. } if why.ends_with("(23502)"))
}

async fn store(
    shared: &Shared,
    session: &Lease,
    tasks: &[NewTask],
    lanes: &[i64],
) -> Result<Vec<Sent>, StoreError> {
    let told = shared.told_time();
    let is_named = tasks.iter().any(|task| task.dedupe.is_some());
    let named = if is_named { claim_names(session, tasks, told).await? } else { vec![None; tasks.len()] };
    add(shared, session, tasks, lanes, &named, is_named).await
}

/// Stores those of these tasks that are new, and commits.
pub(super) async fn add(
    shared: &Shared,
    session: &Lease,
    tasks: &[NewTask],
    lanes: &[i64],
    named: &[Option<Named>],
    is_begun: bool,
) -> Result<Vec<Sent>, StoreError> {
    let told = shared.told_time();
    let columns = Columns::of(tasks, lanes, named);
    let limits = sent_limits(tasks);
    let begin = async { if is_begun { Ok(()) } else { session.run("BEGIN").await } };
    let limited = async {
        if limits.0.is_empty() {
            Ok(Vec::new())
        } else {
            let params: Params<'_, 2> = [&limits.0, &limits.1];
            let (_, changed) = flight!(session.query(LOCK_SENT, params), session.query(SENT_LIMITS, params))?;
            Ok(changed)
        }
    };
    let is_delayed = tasks.iter().any(|task| task.start.is_some());
    let (_, _, _, _, added, ready, _, _) = flight!(
        begin,
        session.query(SHARE_LANES, [&columns.all_lanes]),
        limited,
        session.query_if(!columns.heavy_lanes.is_empty(), HEAVY_LANES, [&columns.heavy_lanes]),
        session.query(
            ADD_TASKS,
            [
                &columns.ids,
                &columns.lanes,
                &columns.weights,
                &columns.due,
                &columns.due_from_now,
                &columns.good,
                &columns.good_from_now,
                &columns.records,
                &columns.notes,
                &columns.noted_at,
                &told,
            ],
        ),
        session.query(READY_SENT, [&columns.all_lanes, &shared.mark]),
        session.query_if(is_delayed, DELAYED, []),
        session.run("COMMIT"),
    )?;
    if !ready.is_empty() {
        // Workers of this process hear of it now, and not by way of the server.
        let _ = shared.wakes.send(Wake::Work);
    }
    let mut added = added.iter().map(|row| TaskId(row.get(0)));
    let mut sent = |named: &Option<Named>| match named {
        Some(Named { task, is_new: false }) => Some(Sent { id: TaskId(*task), is_duplicate: true }),
        _ => added.next().map(|id| Sent { id, is_duplicate: false }),
    };
    let sent: Option<Vec<Sent>> = named.iter().map(&mut sent).collect();
    sent.ok_or_else(|| StoreError::Database {
        doing: "stored tasks",
        why: "fewer rows came back than went in".to_owned(),
    })
}

/// The task that a dedupe id stands for.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) task: i64,
    pub(super) is_new: bool,
}

/// Begins the transaction, and finds for each task with a dedupe id whether it is the first of that id.
async fn claim_names(
    session: &Lease,
    tasks: &[NewTask],
    told: Option<i64>,
) -> Result<Vec<Option<Named>>, StoreError> {
    let mut lasting = std::collections::BTreeMap::new();
    for dedupe in tasks.iter().filter_map(|task| task.dedupe.as_ref()) {
        lasting.entry(dedupe.id.as_str()).or_insert_with(|| nanos(dedupe.window));
    }
    let names: Vec<&str> = lasting.keys().copied().collect();
    let lasting: Vec<i64> = lasting.values().copied().collect();
    let (_, mine, all) = flight!(
        session.run("BEGIN"),
        session.query(CLAIM_NAMES, [&names, &lasting, &told]),
        session.query(NAMED, [&names]),
    )?;
    let mut fresh: std::collections::HashSet<String> = mine.iter().map(|row| row.get(0)).collect();
    let known: std::collections::HashMap<String, i64> =
        all.iter().map(|row| (row.get(0), row.get(1))).collect();
    let named = |task: &NewTask| {
        let id = task.dedupe.as_ref().map(|dedupe| &dedupe.id)?;
        known.get(id).map(|&task| Named { task, is_new: fresh.remove(id) })
    };
    Ok(tasks.iter().map(named).collect())
}

/// The newest limits of each key, in the order of its tasks.
fn sent_limits(tasks: &[NewTask]) -> (Vec<&str>, Vec<String>) {
    let mut newest = std::collections::BTreeMap::new();
    for task in tasks {
        if let (Some(key), Some(limits)) = (&task.key, &task.limits) {
            newest.insert(key.as_str(), crate::terms::to_text(Some(limits)));
        }
    }
    newest.into_iter().unzip()
}

/// Tasks as columns of an insert.
struct Columns {
    all_lanes: Vec<i64>,
    heavy_lanes: Vec<i64>,
    ids: Vec<Option<i64>>,
    lanes: Vec<i64>,
    weights: Vec<i32>,
    due: Vec<Option<i64>>,
    due_from_now: Vec<bool>,
    good: Vec<Option<i64>>,
    good_from_now: Vec<bool>,
    records: Vec<Vec<u8>>,
    notes: Vec<Option<Vec<u8>>>,
    noted_at: Vec<Option<i64>>,
}

impl Columns {
    fn of(tasks: &[NewTask], lanes: &[i64], named: &[Option<Named>]) -> Self {
        let new =
            || tasks.iter().zip(lanes).zip(named).filter(|(_, named)| named.is_none_or(|named| named.is_new));
        let mut all_lanes: Vec<i64> = new().map(|((_, lane), _)| *lane).collect();
        let lanes = all_lanes.clone();
        all_lanes.sort_unstable();
        all_lanes.dedup();
        let heavy = new().filter(|((task, _), _)| task.weight > 1).map(|((_, lane), _)| *lane);
        let note = |task: &NewTask| task.note().map(|(at, body)| (body, moment(When::At(at)))).unzip();
        let (notes, noted_at) = new().map(|((task, _), _)| note(task)).unzip();
        Columns {
            all_lanes,
            heavy_lanes: heavy.collect(),
            lanes,
            ids: new().map(|(_, named)| named.map(|named| named.task)).collect(),
            weights: new().map(|((task, _), _)| task.weight as i32).collect(),
            due: new().map(|((task, _), _)| task.start.map(moment)).collect(),
            due_from_now: new().map(|((task, _), _)| is_from_now(task.start)).collect(),
            good: new().map(|((task, _), _)| task.good_until.map(moment)).collect(),
            good_from_now: new().map(|((task, _), _)| is_from_now(task.good_until)).collect(),
            records: new().map(|((task, _), _)| task.record.to_bytes()).collect(),
            notes,
            noted_at,
        }
    }
}

impl Columns {
    async fn add_in(
        &self,
        transaction: &Transaction<'_>,
        told: Option<i64>,
    ) -> Result<Vec<Sent>, StoreError> {
        let failed = failed("stored tasks in a transaction");
        let columns: Params<'_, 11> = [
            &self.ids,
            &self.lanes,
            &self.weights,
            &self.due,
            &self.due_from_now,
            &self.good,
            &self.good_from_now,
            &self.records,
            &self.notes,
            &self.noted_at,
            &told,
        ];
        let added = transaction.query(ADD_TASKS, &columns);
        let tell = "SELECT pg_notify('flowgate', 'w'), pg_notify('flowgate', 'd')";
        let (added, _) = flight!(added, transaction.query(tell, &[])).map_err(failed)?;
        Ok(added.iter().map(|row| Sent { id: TaskId(row.get(0)), is_duplicate: false }).collect())
    }
}

fn moment(when: When) -> i64 {
    match when {
        When::After(span) => nanos(span),
        When::At(at) => i64::try_from(at.as_nanos()).unwrap_or(i64::MAX),
    }
}

fn is_from_now(when: Option<When>) -> bool {
    matches!(when, Some(When::After(_)))
}

/// Up to a hundred years, so that adding it to a moment stays within what can be counted.
pub(super) fn nanos(span: std::time::Duration) -> i64 {
    const MOST: u128 = 100 * 366 * 24 * 60 * 60 * 1_000_000_000;
    span.as_nanos().min(MOST) as i64
}
