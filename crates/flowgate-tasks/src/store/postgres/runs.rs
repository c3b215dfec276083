//! Runs and their steps.
//!
//! A change takes the run's row, and then what any sender takes: nobody who holds a lane or a key waits for a run.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join_all;
use tokio_postgres::Row;

use super::{
    connect::{Lease, Line, Postgres, Shared},
    direct,
    lanes::LaneName,
    notes,
    rows::tick,
    send::{self, Batch, Named},
    session::{Tries, begun, flight},
    turn::Turnout,
};
use crate::{
    store::{
        Run, RunChange, RunOutcome, RunQuery, RunState, RunStep, RunWrite, Sent, StoreError, Taken,
        runs::{LAST, MAX_BYTES, MAX_STEPS},
    },
    task::{NewTask, TaskId},
};

/// Begins a run, unless its id or its origin is taken, and stores its steps.
pub(super) const START: &str = concat!(
    "WITH written AS (\
    INSERT INTO runs (name, id, origin, state, version, steps, bytes, created, head) \
    SELECT $1::text, $2::text, $3::text, 0, 1, $5::int, $6::bigint, now_ns($9), $4::bytea \
    WHERE ",
    begun!(),
    " AND NOT EXISTS (SELECT FROM runs WHERE id = $2 AND state = 0) \
    AND NOT EXISTS (SELECT FROM runs WHERE origin = $3) AND $5 <= $10::int AND $6 <= $11::bigint \
    ON CONFLICT DO NOTHING RETURNING name), \
    added AS (INSERT INTO steps (run, name, task, at, body) \
    SELECT written.name, asked.name, nextval('task_ids'), now_ns($9), asked.body \
    FROM written CROSS JOIN unnest($7::text[], $8::bytea[]) AS asked (name, body) RETURNING name) \
    SELECT written.name, array(SELECT name FROM added) FROM written"
);

/// The run that has that id or that origin.
pub(super) const TAKEN: &str = "SELECT name FROM runs WHERE id = $1 AND state = 0 \
    UNION ALL SELECT name FROM runs WHERE origin = $2 LIMIT 1";

/// Changes a run that is as it must be, and stores those of its steps that are new.
pub(super) const CHANGE: &str = concat!(
    "WITH written AS (\
    UPDATE runs SET version = version + CASE WHEN $3::bytea IS NULL AND $4::smallint IS NULL THEN 0 ELSE 1 END, \
    head = coalesce($3, head), state = coalesce($4, state), \
    ended = CASE WHEN $4 > 0 THEN now_ns($10) ELSE ended END, steps = steps + $6::int, bytes = bytes + $7::bigint \
    WHERE name = $1 AND ",
    begun!(),
    " AND ($2::bigint IS NULL OR version = $2) AND (state = 0 OR $5::bool) \
    AND steps + $6 <= $11::int AND bytes + $7 <= $12::bigint RETURNING name), \
    added AS (INSERT INTO steps (run, name, task, at, body) \
    SELECT written.name, asked.name, nextval('task_ids'), now_ns($10), asked.body \
    FROM written CROSS JOIN unnest($8::text[], $9::bytea[]) AS asked (name, body) \
    ON CONFLICT (run, name) DO NOTHING RETURNING name) \
    SELECT written.name, array(SELECT name FROM added) FROM written"
);

/// How a run stands that was not changed.
pub(super) const STOOD: &str = "SELECT state, version FROM runs WHERE name = $1";

/// The tasks of these steps.
pub(super) const STEPS_OF: &str = "SELECT name, task FROM steps WHERE run = $1 AND name = ANY($2)";

const RUN: &str = "SELECT name, id, state, version, created, ended, head FROM runs WHERE name = $1";
const STEPS: &str = "SELECT name, task, at, body FROM steps WHERE run = $1 ORDER BY task";
const LIVE_RUN: &str =
    "SELECT name, id, state, version, created, ended, head FROM runs WHERE id = $1 AND state = 0";
const RUNS: &str = "SELECT name, id, state, version, created, ended, head FROM runs \
    WHERE name < $1 AND ($2::text IS NULL OR id = $2) AND (NOT $3 OR state = 0) \
    ORDER BY name DESC LIMIT $4";

/// What is read often, on the connection for everything else.
pub(super) const READS: &[&str] = &[RUN, STEPS, LIVE_RUN, RUNS, notes::ADD_NOTES];

/// What came of a change so far: the steps that are new, or why there is none.
enum Written {
    Steps(Vec<Named>),
    Refused(RunOutcome),
}

impl Postgres {
    pub(super) async fn write_runs(&self, changes: Vec<RunChange>) -> Result<Vec<RunOutcome>, StoreError> {
        for change in &changes {
            for task in change.steps.iter().filter_map(|step| step.task.as_ref()).chain(&change.tasks) {
                task.check()?;
            }
        }
        self.job(Line::Sends, move |shared, mut session| async move {
            let tasks: Vec<NewTask> = changes.iter().flat_map(tasks_of).cloned().collect();
            let names: Vec<LaneName> = tasks.iter().map(LaneName::of).collect();
            let mut tries = Tries::default();
            let mut may_claim = true;
            loop {
                let lanes = shared.lanes.resolve(&session, &names).await?;
                let taken = may_claim.then(|| shared.offers.take(&tasks)).flatten();
                may_claim = false;
                session.begin();
                match Box::pin(write(&shared, &session, &changes, (&tasks, &lanes), taken.as_ref())).await {
                    Ok((outcomes, claimed)) => {
                        session.end();
                        match claimed {
                            Some(_) => direct::hand_over(&shared, taken, claimed),
                            // Nothing of it was to be sent.
                            None => taken.into_iter().for_each(Taken::give_back),
                        }
                        return Ok(outcomes);
                    }
                    Err(error) => {
                        let is_swept = send::lost_a_lane(&error);
                        let goes_on = is_swept || tries.may_go_on_after(&error);
                        direct::fail(&mut session, taken, error, goes_on).await?;
                        if is_swept {
                            shared.lanes.forget();
                        }
                    }
                }
            }
        })
        .await
    }

    pub(super) async fn see_run(&self, name: String) -> Result<Option<(Run, Vec<RunStep>)>, StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let (found, steps) = flight!(session.query(RUN, [&name]), session.query(STEPS, [&name]))?;
            let step = |row: &Row| RunStep {
                name: row.get(0),
                task: TaskId(row.get(1)),
                at: tick(row.get(2)),
                body: row.get(3),
            };
            Ok(found.first().map(|found| (run(found), steps.iter().map(step).collect())))
        })
        .await
    }

    pub(super) async fn see_runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError> {
        self.job(Line::Rest, move |_, session| async move {
            let RunQuery { before, id, is_live, most } = query;
            let most = i64::from(most);
            let found = match (&before, &id, is_live) {
                // What every step asks for: its own index.
                (None, Some(id), true) => session.query(LIVE_RUN, [id]).await?,
                _ => {
                    let before = before.as_deref().unwrap_or(LAST);
                    session.query(RUNS, [&before, &id, &is_live, &most]).await?
                }
            };
            Ok(found.iter().map(run).collect())
        })
        .await
    }
}

/// All that a change may send, in its order.
fn tasks_of(change: &RunChange) -> impl Iterator<Item = &NewTask> {
    change.steps.iter().filter_map(|step| step.task.as_ref()).chain(&change.tasks)
}

/// About how many bytes the store is told of the run itself and of its steps.
fn bytes_of(change: &RunChange) -> usize {
    let head = match &change.write {
        RunWrite::Start { head, .. } => head.len(),
        RunWrite::Change { head, .. } => head.as_ref().map_or(0, Vec::len),
    };
    head + change.steps.iter().map(|step| step.body.len()).sum::<usize>()
}

fn run(row: &Row) -> Run {
    Run {
        name: row.get(0),
        id: row.get(1),
        state: RunState::of_code(row.get(2)),
        version: row.get(3),
        created: tick(row.get(4)),
        ended: row.get::<_, Option<i64>>(5).map(tick),
        head: row.get(6),
    }
}

async fn write(
    shared: &Shared,
    session: &Lease,
    changes: &[RunChange],
    (tasks, lanes): (&[NewTask], &[i64]),
    taken: Option<&Taken>,
) -> Result<(Vec<RunOutcome>, Option<Turnout>), StoreError> {
    let told = shared.told_time();
    // In the order of their names, so that no two who change the same runs wait for each other; several of one run in theirs.
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by_key(|&index| &changes[index].name);
    // All in one flight: the statements arrive in this order.
    let (_, _, written) = flight!(
        session.run(send::beginning(taken)),
        session.carry(changes.iter().map(bytes_of).sum()),
        try_join_all(order.iter().map(|&index| write_one(session, &changes[index], told))),
    )?;
    let mut written: Vec<(usize, Written)> = order.into_iter().zip(written).collect();
    written.sort_by_key(|&(index, _)| index);
    let mut named = Vec::with_capacity(tasks.len());
    let mut kept = Vec::with_capacity(tasks.len());
    let mut outcomes = Vec::with_capacity(changes.len());
    for (change, (_, written)) in changes.iter().zip(written) {
        let steps = match written {
            Written::Steps(steps) => steps,
            Written::Refused(refused) => {
                kept.extend(tasks_of(change).map(|_| false));
                outcomes.push(refused);
                continue;
            }
        };
        let with_task = change.steps.iter().zip(&steps).filter(|(step, _)| step.task.is_some());
        for (_, found) in with_task {
            named.push(Some(*found));
            kept.push(true);
        }
        named.extend(change.tasks.iter().map(|_| None));
        kept.extend(change.tasks.iter().map(|_| true));
        let sent = |found: &Named| Sent { id: TaskId(found.task), is_duplicate: !found.is_new };
        outcomes.push(RunOutcome::Written { steps: steps.iter().map(sent).collect(), tasks: Vec::new() });
    }
    let wanted = |index: usize| kept[index];
    let lanes: Vec<i64> =
        lanes.iter().enumerate().filter(|(index, _)| wanted(*index)).map(|(_, lane)| *lane).collect();
    let tasks: Vec<NewTask> =
        tasks.iter().enumerate().filter(|(index, _)| wanted(*index)).map(|(_, task)| task.clone()).collect();
    if tasks.is_empty() {
        session.run("COMMIT").await?;
        return Ok((outcomes, None));
    }
    let batch = Batch { tasks: &tasks, lanes: &lanes, named: &named, begin: None };
    let (sent, claimed) = send::add(shared, session, batch, taken).await?;
    let mut sent = sent.into_iter();
    for (change, outcome) in changes.iter().zip(&mut outcomes) {
        let RunOutcome::Written { tasks, .. } = outcome else { continue };
        let with_task = change.steps.iter().filter(|step| step.task.is_some()).count();
        tasks.extend(sent.by_ref().skip(with_task).take(change.tasks.len()).map(|sent| sent.id));
    }
    Ok((outcomes, claimed))
}

async fn write_one(session: &Lease, change: &RunChange, told: Option<i64>) -> Result<Written, StoreError> {
    let names: Vec<&str> = change.steps.iter().map(|step| step.name.as_str()).collect();
    let bodies: Vec<&[u8]> = change.steps.iter().map(|step| step.body.as_slice()).collect();
    let (count, bytes) = (names.len() as i32, bodies.iter().map(|body| body.len() as i64).sum::<i64>());
    let (most, largest) = (MAX_STEPS as i32, MAX_BYTES as i64);
    let name = &change.name;
    let (written, known) = match &change.write {
        RunWrite::Start { id, origin, head } => flight!(
            session.query(
                START,
                [name, id, origin, head, &count, &bytes, &names, &bodies, &told, &most, &largest]
            ),
            session.query(STEPS_OF, [name, &names]),
        )?,
        RunWrite::Change { version, head, state, even_ended } => {
            let code = state.map(RunState::code);
            let change = session.query(
                CHANGE,
                [
                    name, version, head, &code, even_ended, &count, &bytes, &names, &bodies, &told, &most,
                    &largest,
                ],
            );
            flight!(change, session.query(STEPS_OF, [name, &names]))?
        }
    };
    let Some(written) = written.first() else {
        return refusal(session, change).await.map(Written::Refused);
    };
    let mut fresh: HashSet<String> = written.get::<_, Vec<String>>(1).into_iter().collect();
    let known: HashMap<&str, i64> = known.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut found = Vec::with_capacity(names.len());
    for step in &names {
        found.push(known.get(step).map(|task| Named { task: *task, is_new: fresh.remove(*step) }));
    }
    let found: Option<Vec<Named>> = found.into_iter().collect();
    found.map(Written::Steps).ok_or_else(|| StoreError::Database {
        doing: "changing a run",
        why: "a step that was stored is not there".to_owned(),
    })
}

/// Why nothing was written.
async fn refusal(session: &Lease, change: &RunChange) -> Result<RunOutcome, StoreError> {
    match &change.write {
        RunWrite::Start { id, origin, .. } => {
            let taken = session.query(TAKEN, [id, origin]).await?;
            Ok(taken.first().map_or(RunOutcome::Full, |row| RunOutcome::Taken { name: row.get(0) }))
        }
        RunWrite::Change { version, even_ended, .. } => {
            let stood = session.query(STOOD, [&change.name]).await?;
            let Some(row) = stood.first() else { return Ok(RunOutcome::Unknown) };
            let state = RunState::of_code(row.get(0));
            if state != RunState::Live && !even_ended {
                return Ok(RunOutcome::Ended(state));
            }
            let is_stale = version.is_some_and(|version| version != row.get::<_, i64>(1));
            Ok(if is_stale { RunOutcome::Stale } else { RunOutcome::Full })
        }
    }
}
