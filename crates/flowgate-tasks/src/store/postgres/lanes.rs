//! Lanes by name: which row a task's queue, key, priority and limits are.
//!
//! Owns the rows that a first task of its kind brings about, and a bounded memory of them, so that most sends ask nothing.

use std::sync::{Mutex, PoisonError};

use flowgate_core::Limits;
use foldhash::{HashMap, HashMapExt as _};

use super::session::{Params, Session, flight};
use crate::{store::StoreError, task::NewTask, terms};

/// More than these are forgotten, all at once: they are asked for again.
const MOST: usize = 100_000;

/// What names a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneName {
    pub(super) queue: String,
    pub(super) key: Option<String>,
    pub(super) priority: i16,
    pub(super) limits: String,
}

impl LaneName {
    pub(super) fn of(task: &NewTask) -> Self {
        LaneName {
            queue: task.queue.clone(),
            key: task.key.clone(),
            priority: task.priority,
            limits: terms::to_text(task.limits.as_ref()),
        }
    }

    /// The names of these tasks' lanes, mostly each once, and which of them is whose: many tasks are of few lanes.
    pub(super) fn of_all(tasks: &[NewTask]) -> (Vec<Self>, Vec<usize>) {
        /// Of one key, limits that were told longer ago are named again.
        const NEAR: usize = 8;
        type Known<'a> = HashMap<(&'a str, Option<&'a str>, i16), Vec<(Option<Limits>, usize)>>;
        let (mut names, mut known) = (Vec::new(), Known::new());
        let place = |task| {
            let NewTask { queue, key, priority, limits, .. }: &NewTask = task;
            let alike = known.entry((queue, key.as_deref(), *priority)).or_default();
            match alike.iter().rev().take(NEAR).find(|(known, _)| known == limits) {
                Some((_, place)) => *place,
                None => {
                    names.push(LaneName::of(task));
                    alike.push((*limits, names.len() - 1));
                    names.len() - 1
                }
            }
        };
        let places = tasks.iter().map(place).collect();
        (names, places)
    }
}

/// The rows known so far.
#[derive(Default)]
pub(super) struct Lanes(Mutex<HashMap<LaneName, i64>>);

const ADD_QUEUES: &str = "INSERT INTO queues (name) \
    SELECT DISTINCT name FROM unnest($1::text[]) AS asked (name) \
    WHERE NOT EXISTS (SELECT FROM queues WHERE queues.name = asked.name) ORDER BY name ON CONFLICT DO NOTHING";
const ADD_KEYS: &str = "INSERT INTO keys (name, latest) \
    SELECT DISTINCT name, cluster.latest FROM unnest($1::text[]) AS asked (name) CROSS JOIN cluster \
    WHERE name IS NOT NULL AND NOT EXISTS (SELECT FROM keys WHERE keys.name = asked.name) ORDER BY name ON CONFLICT DO NOTHING";
const ADD_LANES: &str = "INSERT INTO lanes (queue, key, priority, limits) \
    SELECT queues.id, NULL::bigint, asked.priority, asked.limits \
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[]) AS asked (queue, key, priority, limits) \
    JOIN queues ON queues.name = asked.queue WHERE asked.key IS NULL \
    ORDER BY 1, 3, 4 ON CONFLICT DO NOTHING";
/// Shares the keys' rows: one that is being swept away is waited for, and then it is gone and gets no lane; one that
/// has got a lane is not swept away.
const ADD_KEYED_LANES: &str = "INSERT INTO lanes (queue, key, priority, limits) \
    SELECT queues.id, keys.id, asked.priority, asked.limits \
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[]) AS asked (queue, key, priority, limits) \
    JOIN queues ON queues.name = asked.queue JOIN keys ON keys.name = asked.key \
    ORDER BY keys.id, queues.id, asked.priority, asked.limits FOR KEY SHARE OF keys ON CONFLICT DO NOTHING";
const FIND_LANES: &str = "SELECT lanes.id \
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[]) WITH ORDINALITY AS asked (queue, key, priority, limits, nr) \
    LEFT JOIN queues ON queues.name = asked.queue LEFT JOIN keys ON keys.name = asked.key \
    LEFT JOIN lanes ON lanes.queue = queues.id AND coalesce(lanes.key, 0) = coalesce(keys.id, 0) \
    AND (asked.key IS NULL) = (lanes.key IS NULL) \
    AND lanes.priority = asked.priority AND lanes.limits = asked.limits ORDER BY asked.nr";

pub(super) const STATEMENTS: [&str; 5] = [ADD_QUEUES, ADD_KEYS, ADD_LANES, ADD_KEYED_LANES, FIND_LANES];

impl Lanes {
    /// The rows of these lanes; those that are missing are made.
    pub(super) async fn resolve(
        &self,
        session: &Session,
        names: &[LaneName],
    ) -> Result<Vec<i64>, StoreError> {
        let mut unknown: Vec<&LaneName> = {
            let known = self.lock();
            names.iter().filter(|name| !known.contains_key(name)).collect()
        };
        unknown.sort_by_key(|name| (&name.queue, &name.key, name.priority, &name.limits));
        unknown.dedup();
        // A lane or its key may be swept away, being empty, before the lane is made and found: then it is made again.
        while !unknown.is_empty() {
            let found = make(session, &unknown).await?;
            let mut known = self.lock();
            if known.len() + unknown.len() > MOST {
                known.clear();
            }
            let mut missing = Vec::new();
            for (name, id) in unknown.into_iter().zip(found) {
                match id {
                    Some(id) => drop(known.insert(name.clone(), id)),
                    None => missing.push(name),
                }
            }
            unknown = missing;
        }
        let known = self.lock();
        let ids: Option<Vec<i64>> = names.iter().map(|name| known.get(name).copied()).collect();
        drop(known);
        match ids {
            Some(ids) => Ok(ids),
            // Forgotten again by another send: more lanes in one go than are remembered.
            None => Err(StoreError::Database {
                doing: "looking up lanes",
                why: format!("more than {MOST} at once"),
            }),
        }
    }

    /// Forgets everything: a row that was known is gone.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LaneName, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn make(session: &Session, names: &[&LaneName]) -> Result<Vec<Option<i64>>, StoreError> {
    let queues: Vec<&str> = names.iter().map(|name| name.queue.as_str()).collect();
    let keys: Vec<Option<&str>> = names.iter().map(|name| name.key.as_deref()).collect();
    let priorities: Vec<i16> = names.iter().map(|name| name.priority).collect();
    let limits: Vec<&str> = names.iter().map(|name| name.limits.as_str()).collect();
    let lanes: Params<'_, 4> = [&queues, &keys, &priorities, &limits];
    let (has_keys, has_none) = (keys.iter().any(Option::is_some), keys.iter().any(Option::is_none));
    let (_, _, _, _, found) = flight!(
        session.query(ADD_QUEUES, [&queues]),
        session.query_if(has_keys, ADD_KEYS, [&keys]),
        session.query_if(has_none, ADD_LANES, lanes),
        session.query_if(has_keys, ADD_KEYED_LANES, lanes),
        session.query(FIND_LANES, lanes),
    )?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}
