//! Runs and their steps.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{
    error::Fault,
    lanes,
    lanes::{moment, tick},
    send::Sender,
    threads::Hand,
};
use crate::{
    store::{
        NewStep, Run, RunChange, RunOutcome, RunQuery, RunState, RunStep, RunWrite, Sent,
        runs::{LAST, MAX_BYTES, MAX_STEPS},
    },
    task::{NewTask, TaskId},
};

const COLUMNS: &str = "name, id, state, version, created, ended, head";

/// Changes runs, in this order. What cannot be of one of them keeps none of the others from being written.
pub(super) fn change(hand: &mut Hand<'_>, changes: &[RunChange]) -> Result<Vec<RunOutcome>, Fault> {
    for change in changes {
        for task in change.steps.iter().filter_map(|step| step.task.as_ref()).chain(&change.tasks) {
            task.check()?;
        }
    }
    let mut sender = Sender::new(hand.db)?;
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        if let Some(refused) = write(hand, change)? {
            outcomes.push(refused);
            continue;
        }
        let steps = change.steps.iter().map(|step| add(hand, &mut sender, &change.name, step));
        let steps = steps.collect::<Result<_, _>>()?;
        let tasks = change.tasks.iter().map(|task| send(hand, &mut sender, task));
        outcomes.push(RunOutcome::Written { steps, tasks: tasks.collect::<Result<_, _>>()? });
    }
    sender.fill(hand)?;
    Ok(outcomes)
}

/// Why the run is not as it must be, if it is not.
fn write(hand: &Hand<'_>, change: &RunChange) -> Result<Option<RunOutcome>, Fault> {
    let (db, now) = (hand.db, moment(hand.now));
    let count = change.steps.len() as u32;
    let bytes = change.steps.iter().map(|step| step.body.len() as u64).sum::<u64>();
    match &change.write {
        RunWrite::Start { id, origin, head } => {
            let sql = "SELECT name FROM runs WHERE id = ?1 AND state = 0
                UNION ALL SELECT name FROM runs WHERE origin = ?2 LIMIT 1";
            let taken =
                db.prepare_cached(sql)?.query_row(params![id, origin], |row| row.get(0)).optional()?;
            if let Some(name) = taken {
                return Ok(Some(RunOutcome::Taken { name }));
            }
            if count > MAX_STEPS || bytes > MAX_BYTES {
                return Ok(Some(RunOutcome::Full));
            }
            let sql = "INSERT INTO runs (name, id, origin, state, version, steps, bytes, created, head)
                VALUES (?1, ?2, ?3, 0, 1, ?4, ?5, ?6, ?7)";
            let values = params![change.name, id, origin, count, bytes as i64, now, head];
            db.prepare_cached(sql)?.execute(values)?;
            Ok(None)
        }
        RunWrite::Change { version, head, state, even_ended } => {
            let sql = "SELECT state, version, steps, bytes FROM runs WHERE name = ?1";
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            let found: Option<(i16, i64, u32, i64)> =
                db.prepare_cached(sql)?.query_row([&change.name], read).optional()?;
            let Some((stood, known, steps, size)) = found else { return Ok(Some(RunOutcome::Unknown)) };
            let refused =
                refusal(RunState::of_code(stood), *even_ended, version.is_none_or(|it| it == known));
            if refused.is_some() {
                return Ok(refused);
            }
            if count + steps > MAX_STEPS || bytes + size as u64 > MAX_BYTES {
                return Ok(Some(RunOutcome::Full));
            }
            let code = state.map(RunState::code);
            let sql = "UPDATE runs SET version = version + (?2 IS NOT NULL OR ?3 IS NOT NULL),
                head = coalesce(?2, head), state = coalesce(?3, state),
                ended = CASE WHEN ?3 > 0 THEN ?4 ELSE ended END,
                steps = steps + ?5, bytes = bytes + ?6 WHERE name = ?1";
            let values = params![change.name, head, code, now, count, bytes as i64];
            db.prepare_cached(sql)?.execute(values)?;
            Ok(None)
        }
    }
}

/// Why a run that stands so is not changed.
fn refusal(state: RunState, even_ended: bool, is_version: bool) -> Option<RunOutcome> {
    if state != RunState::Live && !even_ended {
        return Some(RunOutcome::Ended(state));
    }
    (!is_version).then_some(RunOutcome::Stale)
}

fn add<'a>(
    hand: &mut Hand<'_>,
    sender: &mut Sender<'a>,
    run: &str,
    step: &'a NewStep,
) -> Result<Sent, Fault> {
    let sql = "SELECT task FROM steps WHERE run = ?1 AND name = ?2";
    let known =
        hand.db.prepare_cached(sql)?.query_row(params![run, step.name], |row| row.get(0)).optional()?;
    if let Some(task) = known {
        return Ok(Sent { id: TaskId(task), is_duplicate: true });
    }
    let id = lanes::take_numbers(hand.db, 1)? + 1;
    let sql = "INSERT INTO steps (run, name, task, at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    hand.db.prepare_cached(sql)?.execute(params![run, step.name, id, moment(hand.now), step.body])?;
    if let Some(task) = &step.task {
        sender.store(hand, task, id)?;
    }
    Ok(Sent { id: TaskId(id), is_duplicate: false })
}

fn send<'a>(hand: &mut Hand<'_>, sender: &mut Sender<'a>, task: &'a NewTask) -> Result<TaskId, Fault> {
    let id = lanes::take_numbers(hand.db, 1)? + 1;
    sender.store(hand, task, id)?;
    Ok(TaskId(id))
}

pub(super) fn run(db: &Connection, name: &str) -> Result<Option<(Run, Vec<RunStep>)>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM runs WHERE name = ?1");
    let Some(run) = db.prepare_cached(&sql)?.query_row([name], read).optional()? else { return Ok(None) };
    let mut statement = db.prepare_cached("SELECT name, task, at, body FROM steps WHERE run = ?1")?;
    let steps = statement.query_map([name], |row| {
        Ok(RunStep { name: row.get(0)?, task: TaskId(row.get(1)?), at: tick(row.get(2)?), body: row.get(3)? })
    })?;
    let mut steps: Vec<RunStep> = steps.collect::<Result<_, _>>()?;
    steps.sort_unstable_by_key(|step| step.task);
    Ok(Some((run, steps)))
}

pub(super) fn runs(db: &Connection, query: &RunQuery) -> Result<Vec<Run>, Fault> {
    let RunQuery { before, id, is_live, most } = query;
    if let (None, Some(id), true) = (before, id, is_live) {
        // What every step asks for: its own index.
        let sql = format!("SELECT {COLUMNS} FROM runs WHERE id = ?1 AND state = 0");
        return Ok(db.prepare_cached(&sql)?.query_row([id], read).optional()?.into_iter().collect());
    }
    let of_id = if id.is_some() { "id = ?2" } else { "?2 IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM runs WHERE name < ?1 AND {of_id} AND (NOT ?3 OR state = 0)
        ORDER BY name DESC LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let before = before.as_deref().unwrap_or(LAST);
    let found = statement.query_map(params![before, id, is_live, most], read)?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        name: row.get(0)?,
        id: row.get(1)?,
        state: RunState::of_code(row.get(2)?),
        version: row.get(3)?,
        created: tick(row.get(4)?),
        ended: row.get::<_, Option<i64>>(5)?.map(tick),
        head: row.get(6)?,
    })
}

/// Which of these tasks nobody holds.
pub(super) fn waiting(db: &Connection, tasks: &[TaskId]) -> Result<Vec<TaskId>, Fault> {
    let mut statement = db.prepare_cached("SELECT 1 FROM tasks WHERE id = ?1")?;
    let mut waiting = Vec::new();
    for task in tasks {
        if statement.exists([task.0])? {
            waiting.push(*task);
        }
    }
    Ok(waiting)
}

/// Removes some of the runs that ended before.
pub(super) fn prune(db: &Connection, before: i64, most: u32) -> Result<usize, Fault> {
    let sql = "SELECT name FROM runs WHERE ended < ?1 ORDER BY ended LIMIT ?2";
    let mut statement = db.prepare_cached(sql)?;
    let names = statement.query_map(params![before, most], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    for name in &names {
        db.prepare_cached("DELETE FROM steps WHERE run = ?1")?.execute([name])?;
        db.prepare_cached("DELETE FROM runs WHERE name = ?1")?.execute([name])?;
    }
    Ok(names.len())
}
