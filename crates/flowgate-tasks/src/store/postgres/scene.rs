//! What a turn knows when it decides: the first flight of its transaction.
//!
//! Owns what is read and locked, and in which order (see the store's own page). It decides nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use tokio_postgres::Row;

use super::{ahead::START, connect::Lease, rows, session::flight};
use crate::{
    ledger::Ledger,
    plan::{Candidate, Counter, LaneState, Scene},
    store::{Claimed, Settle, StoreError, Want, WorkerId},
    task::TaskId,
};

/// No turn looks at more lanes of one queue than these.
const MOST_LANES: u32 = 512;
/// The same without a key, and how many with a key the server names whether or not others have them.
const MOST_PLAIN: usize = 16;
const A_FEW: usize = 4;

const WORKER: &str = "SELECT now_ns($2) AS now, worker.id AS worker FROM (SELECT) AS one \
    LEFT JOIN LATERAL (SELECT id FROM workers WHERE id = $1 FOR KEY SHARE) AS worker ON true";
const CLUSTER: &str = "SELECT cap, in_use FROM cluster";
const LOCK_CLUSTER: &str = "SELECT cap, in_use FROM cluster WHERE cap IS NOT NULL FOR NO KEY UPDATE";
const QUEUES: &str = "SELECT id, priority, max, in_use, paused FROM queues";
const LOCK_QUEUES: &str = "SELECT FROM queues WHERE max IS NOT NULL ORDER BY id FOR NO KEY UPDATE";
const LOCK_KEYS: &str = "SELECT id, in_use, paused, pinned, sent, latest, rates FROM keys \
    WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";
/// Both tell which of a lease's tasks had been settled before.
const GIVE_BACK: &str = "DELETE FROM leases WHERE id = ANY($1) AND worker = $2 RETURNING id, done, ahead_until IS NOT NULL AS is_ahead";
const GIVE_BACK_SOME: &str = "WITH given AS (SELECT lease, array_agg(DISTINCT id) AS ids \
    FROM unnest($1::bigint[], $2::bigint[]) AS asked (lease, id) GROUP BY lease), \
    old AS (SELECT leases.id, leases.done, given.ids FROM leases JOIN given ON leases.id = given.lease \
    WHERE leases.worker = $3 FOR UPDATE OF leases) \
    UPDATE leases SET done = old.done || array(SELECT id FROM unnest(old.ids) AS fresh (id) WHERE id <> ALL(old.done)) \
    FROM old WHERE leases.id = old.id RETURNING leases.id, old.done AS done, leases.ahead_until IS NOT NULL AS is_ahead";

/// Ready lanes with a key: those of the best priority after the cursor, then the others from the beginning; each key locked, unless
/// somebody else has it. Those that this turn has locked before are not looked up again.
const KEYED_LANES: &str = "WITH ready AS MATERIALIZED (\
    SELECT lanes.*, row_number() OVER () AS nr FROM queues CROSS JOIN LATERAL (\
    SELECT priority AS best FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL ORDER BY priority LIMIT 1) AS first \
    CROSS JOIN LATERAL (\
    (SELECT id, queue, key, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL \
    AND priority = best AND id > $1 ORDER BY id LIMIT $2) UNION ALL \
    (SELECT id, queue, key, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL \
    AND (priority > best OR id <= $1) ORDER BY priority, id LIMIT $2)) AS lanes \
    WHERE NOT queues.paused AND (queues.max IS NULL OR queues.in_use < queues.max OR queues.id = ANY($3)) \
    AND EXISTS (SELECT FROM workers WHERE id = $4 AND (workers.queues IS NULL OR lanes.queue = ANY(workers.queues)))) \
    SELECT * FROM (SELECT ready.id AS lane, ready.queue, ready.priority, ready.limits, ready.heavy, ready.nr, \
    keys.id AS key, in_use, paused, pinned, sent, latest, rates \
    FROM ready JOIN keys ON keys.id = ready.key WHERE ready.key <> ALL($5) FOR NO KEY UPDATE OF keys SKIP LOCKED) AS free UNION ALL \
    SELECT id, queue, priority, limits, heavy, nr, key, 0, false, NULL, '', false, '' FROM ready WHERE key = ANY($5)";
const PLAIN_LANES: &str = "SELECT lanes.id AS lane, queue, lanes.priority, limits, heavy FROM queues CROSS JOIN LATERAL (\
    SELECT id, queue, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NULL \
    ORDER BY priority, id LIMIT 16) AS lanes \
    WHERE EXISTS (SELECT FROM workers WHERE id = $1 AND (workers.queues IS NULL OR lanes.queue = ANY(workers.queues)))";
/// A few of the lanes with a key that are ready, their keys locked or not.
const ANY_KEYED: &str = "SELECT lanes.id AS lane FROM queues CROSS JOIN LATERAL (\
    SELECT id, queue FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL LIMIT 4) AS lanes \
    WHERE NOT paused AND (max IS NULL OR in_use < max) \
    AND EXISTS (SELECT FROM workers WHERE id = $1 AND (workers.queues IS NULL OR lanes.queue = ANY(workers.queues))) LIMIT 4";
/// Lanes held by keys of which something comes back.
const HELD_LANES: &str = "SELECT id AS lane, queue, key, priority, limits, heavy FROM lanes \
    WHERE key = ANY($1) AND state = 2 ORDER BY id";

pub(super) const STATEMENTS: [&str; 13] = [
    START,
    WORKER,
    CLUSTER,
    LOCK_CLUSTER,
    QUEUES,
    LOCK_QUEUES,
    LOCK_KEYS,
    GIVE_BACK,
    GIVE_BACK_SOME,
    KEYED_LANES,
    PLAIN_LANES,
    ANY_KEYED,
    HELD_LANES,
];

/// What a turn asks for.
pub(super) struct Asked<'a> {
    pub(super) worker: WorkerId,
    pub(super) settles: &'a [Settle],
    /// What was claimed ahead and has started.
    pub(super) starts: &'a [Claimed],
    pub(super) want: Option<Want>,
    /// The lane after which the rotation goes on.
    pub(super) cursor: i64,
    pub(super) told: Option<i64>,
    /// The leases of which everything that is left is settled now.
    pub(super) whole: HashSet<i64>,
}

/// What the first flight brought.
pub(super) struct Loaded {
    pub(super) scene: Scene,
    /// Whether there are more lanes than a turn looks at.
    pub(super) has_more: bool,
    /// Whether there are lanes to look at, and all of them are locked by others.
    pub(super) is_locked_out: bool,
    /// Whether no other lane is ready, as far as anybody knows.
    pub(super) sees_all: bool,
    /// What was said of each lane so far.
    pub(super) were: Vec<LaneState>,
    /// What was counted of each key, before anything came back.
    pub(super) counted: Vec<(u32, Ledger)>,
    /// Lanes whose head may take more than one slot.
    pub(super) heavy: HashSet<i64>,
    /// What is given back of leases that are still the worker's, by its place among the settles: the rest was lost before.
    pub(super) back: BTreeSet<usize>,
    /// What had started, and was not the worker's any more.
    pub(super) missed: Vec<TaskId>,
}

/// Begins the transaction and reads what the plan needs, with what was given back already counted as free.
pub(super) async fn load(session: &Lease, asked: &Asked<'_>) -> Result<Loaded, StoreError> {
    let back = Back::of(asked);
    let (worker, wants) = (asked.worker.0, asked.want.is_some());
    let is_locked = asked.want.is_some_and(|want| want.with_locks);
    let most = asked.want.map_or(0, |want| i64::from(want.slots.saturating_mul(2).clamp(8, MOST_LANES)));
    let (_, _, _, known, locked, started, whole, some, cluster, queues, held, keyed, plain, any) = flight!(
        session.run("BEGIN; LOCK TABLE leases IN ROW EXCLUSIVE MODE"),
        session.query_if(is_locked, LOCK_CLUSTER, []),
        session.query_if(is_locked, LOCK_QUEUES, []),
        session.query(WORKER, [&worker, &asked.told]),
        session.query_if(!back.keys.is_empty(), LOCK_KEYS, [&back.keys]),
        session.query_if(!back.starts.is_empty(), START, [&back.starts, &worker, &asked.told]),
        session.query_if(!back.whole.is_empty(), GIVE_BACK, [&back.whole, &worker]),
        session.query_if(!back.ids.is_empty(), GIVE_BACK_SOME, [&back.leases, &back.ids, &worker]),
        session.query(CLUSTER, []),
        session.query(QUEUES, []),
        session.query_if(!back.keys.is_empty(), HELD_LANES, [&back.keys]),
        session.query_if(wants, KEYED_LANES, [&asked.cursor, &most, &back.queues, &worker, &back.keys]),
        session.query_if(wants, PLAIN_LANES, [&worker]),
        session.query_if(wants, ANY_KEYED, [&worker]),
    )?;
    let known = known.first().expect("one row, whether or not there is such a worker");
    if wants && known.get::<_, Option<i64>>("worker").is_none() {
        return Err(StoreError::Gone { worker: asked.worker });
    }
    let quota = asked.want.map_or(0, |want| want.per_queue);
    let mut builder = Builder {
        scene: Scene {
            now: rows::tick(known.get("now")),
            budget: asked.want.map_or(0, |want| want.slots),
            cluster: cluster.first().map(|row| rows::cluster(row, is_locked)).unwrap_or_default(),
            queues: queues.iter().map(|row| rows::queue(row, quota, is_locked)).collect(),
            keys: Vec::new(),
            lanes: Vec::new(),
        },
        places: HashMap::new(),
        counted: Vec::new(),
        freed: HashMap::new(),
        seen: HashSet::new(),
        heavy: HashSet::new(),
    };
    for row in &locked {
        builder.key(row, "id")?;
    }
    let gone = || whole.iter().chain(&some);
    let uncounted: HashSet<i64> = gone().filter(|row| row.get("is_ahead")).map(|row| row.get("id")).collect();
    let back = fenced(asked.settles, gone());
    builder.count_starts(asked.starts, &started);
    let counted = |settle: &&Settle| !uncounted.contains(&settle.task.lease);
    builder.give_back(back.iter().map(|&index| &asked.settles[index]).filter(counted));
    let missed = builder.start(asked.starts, &started)?;
    let is_locked_out = keyed.is_empty() && !any.is_empty();
    let has_more = keyed.len() as i64 >= most && most > 0;
    let seen: HashSet<i64> = keyed.iter().map(|row| row.get("lane")).collect();
    let sees_all = plain.len() < MOST_PLAIN
        && any.len() < A_FEW
        && any.iter().all(|row| seen.contains(&row.get::<_, i64>("lane")));
    let were = builder.lanes(&plain, keyed, &held)?;
    Ok(Loaded {
        scene: builder.scene,
        has_more,
        is_locked_out,
        sees_all,
        were,
        counted: builder.counted,
        heavy: builder.heavy,
        back,
        missed,
    })
}

/// The settles whose lease is still the worker's, each task once.
fn fenced<'a>(settles: &[Settle], leases: impl Iterator<Item = &'a Row>) -> BTreeSet<usize> {
    let mut done: HashMap<i64, HashSet<i64>> =
        leases.map(|row| (row.get("id"), row.get::<_, Vec<i64>>("done").into_iter().collect())).collect();
    let mut is_first =
        |settle: &Settle| done.get_mut(&settle.task.lease).is_some_and(|done| done.insert(settle.task.id.0));
    settles.iter().enumerate().filter(|(_, settle)| is_first(settle)).map(|(index, _)| index).collect()
}

/// What is given back, as parameters.
#[derive(Default)]
struct Back {
    keys: Vec<i64>,
    queues: Vec<i64>,
    whole: Vec<i64>,
    leases: Vec<i64>,
    ids: Vec<i64>,
    starts: Vec<i64>,
}

impl Back {
    fn of(asked: &Asked<'_>) -> Self {
        let mut back = Back { whole: asked.whole.iter().copied().collect(), ..Back::default() };
        for Settle { task, .. } in asked.settles {
            back.keys.extend(task.place.key);
            back.queues.push(task.place.queue);
            if !asked.whole.contains(&task.lease) {
                back.leases.push(task.lease);
                back.ids.push(task.id.0);
            }
        }
        back.starts.extend(asked.starts.iter().map(|task| task.lease));
        back.keys.extend(asked.starts.iter().filter_map(|task| task.place.key));
        for ids in [&mut back.keys, &mut back.queues] {
            ids.sort_unstable();
            ids.dedup();
        }
        back
    }
}

/// A scene in the making.
struct Builder {
    scene: Scene,
    /// Where each key is, and what was counted of it.
    places: HashMap<i64, usize>,
    counted: Vec<(u32, Ledger)>,
    /// How many slots of each key came back, and were not taken by what was claimed ahead.
    freed: HashMap<i64, u32>,
    seen: HashSet<i64>,
    heavy: HashSet<i64>,
}

impl Builder {
    fn key(&mut self, row: &Row, id: &str) -> Result<usize, StoreError> {
        let id: i64 = row.get(id);
        if let Some(&place) = self.places.get(&id) {
            return Ok(place);
        }
        let place = self.scene.keys.len();
        let key = rows::key(row, id)?;
        self.counted.push((key.in_use, key.ledger.clone()));
        self.scene.keys.push(key);
        self.places.insert(id, place);
        Ok(place)
    }

    /// What was claimed ahead holds slots of its key from its start on. Before what ended is given back: that may be some of these.
    fn count_starts(&mut self, starts: &[Claimed], known: &[Row]) {
        let new: HashSet<i64> =
            known.iter().filter(|row| row.get("is_new")).map(|row| row.get("id")).collect();
        for task in starts.iter().filter(|task| new.contains(&task.lease)) {
            if let Some(&place) = task.place.key.and_then(|key| self.places.get(&key)) {
                self.scene.keys[place].in_use += task.weight;
            }
        }
    }

    /// What comes back is free for this turn.
    fn give_back<'a>(&mut self, settles: impl Iterator<Item = &'a Settle>) {
        for Settle { task, .. } in settles {
            free_one(&mut self.scene.cluster);
            if let Some(queue) = self.scene.queues.iter_mut().find(|queue| queue.id == task.place.queue) {
                free_one(&mut queue.counter);
            }
            if let Some(&place) = task.place.key.and_then(|key| self.places.get(&key)) {
                let key = &mut self.scene.keys[place];
                key.in_use = key.in_use.saturating_sub(task.weight);
                *self.freed.entry(key.id).or_default() += task.weight;
            }
        }
    }

    /// What was claimed ahead counts from its start on. Gives what was lost before.
    fn start(&mut self, starts: &[Claimed], known: &[Row]) -> Result<Vec<TaskId>, StoreError> {
        let known: HashMap<i64, bool> = known.iter().map(|row| (row.get("id"), row.get("is_new"))).collect();
        let mut missed = Vec::new();
        for task in starts {
            match known.get(&task.lease) {
                None => missed.push(task.id),
                Some(false) => {}
                Some(true) => {
                    let queue = self.scene.queues.iter_mut().find(|queue| queue.id == task.place.queue);
                    take_place(queue.map(|queue| &mut queue.counter))?;
                    take_place(Some(&mut self.scene.cluster))?;
                    if let Some(key) = task.place.key {
                        let left = self.freed.get(&key).copied().unwrap_or_default().checked_sub(task.weight);
                        self.freed.insert(key, left.ok_or_else(|| nobodys_place("key"))?);
                    }
                }
            }
        }
        Ok(missed)
    }

    /// Lanes in the order in which they are served, and what was said of them.
    fn lanes(
        &mut self,
        plain: &[Row],
        mut keyed: Vec<Row>,
        held: &[Row],
    ) -> Result<Vec<LaneState>, StoreError> {
        let mut were = Vec::new();
        for row in plain {
            self.lane(row, None)?;
            were.push(LaneState::Ready);
        }
        keyed.sort_by_key(|row| row.get::<_, i64>("nr"));
        for row in &keyed {
            if self.seen.insert(row.get("lane")) {
                let key = self.key(row, "key")?;
                self.lane(row, Some(key))?;
                were.push(LaneState::Ready);
            }
        }
        for row in held {
            if self.seen.insert(row.get("lane")) {
                let key = self.places.get(&row.get::<_, i64>("key")).copied();
                self.lane(row, key)?;
                were.push(LaneState::Held);
            }
        }
        Ok(were)
    }

    fn lane(&mut self, row: &Row, key: Option<usize>) -> Result<(), StoreError> {
        let lane: Candidate = rows::candidate(row, key)?;
        if key.is_some() && row.get("heavy") {
            self.heavy.insert(lane.id);
        }
        self.scene.lanes.push(lane);
        Ok(())
    }
}

/// One that starts without having asked takes the place of one that ended.
fn take_place(counter: Option<&mut Counter>) -> Result<(), StoreError> {
    let Some(counter) = counter.filter(|counter| counter.cap.is_some()) else { return Ok(()) };
    counter.taken += 1;
    if counter.taken <= counter.freed {
        return Ok(());
    }
    Err(nobodys_place("queue"))
}

fn nobodys_place(of: &str) -> StoreError {
    let why = format!("more started of what was claimed ahead than ended of its {of}");
    StoreError::Database { doing: "started tasks", why }
}

fn free_one(counter: &mut Counter) {
    if counter.cap.is_some() {
        counter.freed += 1;
        counter.in_use = counter.in_use.saturating_sub(1);
    }
}
