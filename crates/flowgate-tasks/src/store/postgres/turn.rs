//! A turn: settle and claim in one transaction, in three flights of statements.
//!
//! First flight: what is given back is fenced and its keys are locked; counters and lanes that may run are read, and their keys
//! locked where nobody else has them. Then the plan decides. Second flight: tasks move into one lease. Third flight: counts,
//! lane states and ends are written, and all of it commits.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use super::{
    ahead,
    changes::Changes,
    connect::{Lease, Line, Postgres, Shared},
    idle::{self, Rest},
    marks, rows,
    scene::{self, Asked, Loaded},
    send::{DELAYED, READY_LANES, SHARE_LANES},
    session::flight,
    settle::{self, Ends},
};
use crate::{
    plan::{Grant, Plan, Scene},
    store::{Again, Claimed, Place, Settle, StoreError, Turn, Turned, WorkerId},
};

/// From lanes whose key is locked nobody else takes; from the others everybody does, so there each row is locked. Rows are
/// deleted by where they are: nobody moves a task that stands in line.
const TAKE: &str = "WITH grants AS (\
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::bool[], $6::bigint[]) AS granted (lane, count, alone, low)), \
    picked AS MATERIALIZED (SELECT first.spot FROM grants CROSS JOIN LATERAL (\
    SELECT ctid AS spot FROM tasks WHERE lane = grants.lane AND place >= grants.low \
    AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT grants.count) AS first WHERE alone \
    UNION ALL SELECT first.spot FROM grants CROSS JOIN LATERAL (\
    SELECT ctid AS spot FROM tasks WHERE lane = grants.lane AND place >= grants.low \
    AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT grants.count FOR UPDATE SKIP LOCKED) AS first WHERE NOT alone), \
    taken AS (DELETE FROM tasks WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) RETURNING tasks.*) \
    INSERT INTO leases (worker, since, ids, lanes, attempts, weights, goods, records) \
    SELECT $5, $4, array_agg(id), array_agg(lane), array_agg(attempt + 1), array_agg(weight), array_agg(coalesce(good_until, 0)), \
    array_agg(record) FROM (SELECT * FROM taken ORDER BY lane, place, id) AS taken HAVING count(*) > 0 \
    RETURNING id, ids, lanes, attempts, weights, goods, records";
/// How many of those granted stand in a lane, and how many of these, from its head, fit into the room its key has.
const FITTING: &str = "SELECT lane, (SELECT count(*) FROM (SELECT sum(weight) OVER (ORDER BY place, id) AS load FROM (\
    SELECT weight, place, id FROM tasks WHERE lane = granted.lane AND place >= low \
    AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT granted.count) AS first) AS first \
    WHERE load <= room) AS fitting, \
    (SELECT count(*) FROM (SELECT FROM tasks WHERE lane = granted.lane AND place >= low \
    AND (good_until IS NULL OR good_until > $4) LIMIT granted.count) AS first) AS standing \
    FROM unnest($1::bigint[], $2::int[], $3::bigint[], $5::bigint[]) AS granted (lane, count, room, low)";

const WRITE_KEYS: &str = "UPDATE keys SET in_use = told.in_use, rates = told.rates \
    FROM unnest($1::bigint[], $2::int[], $3::text[]) AS told (id, in_use, rates) WHERE keys.id = told.id";
const WRITE_LANES: &str = "WITH told AS (SELECT lanes.id, told.state, told.wake_at FROM lanes \
    JOIN unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS told (id, state, wake_at) ON lanes.id = told.id \
    ORDER BY lanes.id FOR NO KEY UPDATE OF lanes) \
    UPDATE lanes SET state = told.state, wake_at = told.wake_at FROM told WHERE lanes.id = told.id";
const WRITE_CLUSTER: &str = "UPDATE cluster SET in_use = greatest(0, in_use + $1) WHERE cap IS NOT NULL";
const WRITE_QUEUES: &str = "WITH told AS (SELECT queues.id, told.change FROM queues \
    JOIN unnest($1::bigint[], $2::int[]) AS told (id, change) ON queues.id = told.id ORDER BY queues.id FOR NO KEY UPDATE OF queues) \
    UPDATE queues SET in_use = greatest(0, in_use + told.change) FROM told WHERE queues.id = told.id AND queues.max IS NOT NULL";
const ENDED: &str = "SELECT pg_notify('flowgate', 'e' || id) FROM unnest($1::bigint[]) AS ended (id)";
const WAKE: &str = "SELECT pg_notify('flowgate', 'w')";

pub(super) const STATEMENTS: &[&str] = &[
    scene::STATEMENTS[0],
    scene::STATEMENTS[1],
    scene::STATEMENTS[2],
    scene::STATEMENTS[3],
    scene::STATEMENTS[4],
    scene::STATEMENTS[5],
    scene::STATEMENTS[6],
    scene::STATEMENTS[7],
    scene::STATEMENTS[8],
    scene::STATEMENTS[9],
    scene::STATEMENTS[10],
    scene::STATEMENTS[11],
    scene::STATEMENTS[12],
    ahead::TAKE_AHEAD,
    ahead::TAKE_AHEAD_OF_KEYS,
    TAKE,
    FITTING,
    WRITE_KEYS,
    WRITE_LANES,
    WRITE_CLUSTER,
    WRITE_QUEUES,
    WAKE,
    ENDED,
    idle::STATEMENTS[0],
    idle::STATEMENTS[1],
    marks::STATEMENTS[0],
    marks::STATEMENTS[1],
    SHARE_LANES,
    READY_LANES,
    DELAYED,
    settle::ADD_AGAIN,
    settle::ADD_DEAD,
    settle::ADD_RESULTS,
];

/// What a process remembers between turns. Nothing depends on it but speed and fairness.
#[derive(Default)]
pub(super) struct Memory {
    /// The lane that was served last: the rotation goes on behind it.
    cursor: AtomicI64,
    /// How long to wait before lanes are looked at again that could not be made idle.
    pub(super) idling: idle::Backoff,
    pub(super) marks: marks::Marks,
    /// The tasks of each lease that this process has not settled yet.
    open: Mutex<HashMap<i64, HashSet<i64>>>,
}

impl Memory {
    fn open(&self) -> MutexGuard<'_, HashMap<i64, HashSet<i64>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The leases of which these are all that is left. Of a lease this process does not know, it settles everything.
    fn whole(&self, settles: &[Settle]) -> HashSet<i64> {
        let ending: HashSet<(i64, i64)> =
            settles.iter().map(|settle| (settle.task.lease, settle.task.id.0)).collect();
        let open = self.open();
        let is_whole = |lease: &i64| {
            open.get(lease).is_none_or(|tasks| tasks.iter().all(|&task| ending.contains(&(*lease, task))))
        };
        settles.iter().map(|settle| settle.task.lease).filter(is_whole).collect()
    }

    fn settled(&self, settles: &[Settle], whole: &HashSet<i64>) {
        let mut open = self.open();
        for Settle { task, .. } in settles {
            if let Some(tasks) = open.get_mut(&task.lease) {
                tasks.remove(&task.id.0);
            }
        }
        open.retain(|lease, _| !whole.contains(lease));
    }

    fn claimed(&self, tasks: &[Claimed]) {
        let mut open = self.open();
        for task in tasks {
            open.entry(task.lease).or_default().insert(task.id.0);
        }
    }
}

impl Postgres {
    /// What was claimed may start as soon as it is committed: lanes that came up short are seen to after that.
    pub(super) async fn take_turn(&self, worker: WorkerId, turn: Turn) -> Result<Turned, StoreError> {
        let (turned, rest) = self
            .job(Line::Turns, move |shared, session| async move {
                Box::pin(run(&shared, session, worker, turn)).await
            })
            .await?;
        if !turned.claimed.is_empty() {
            self.shared.turning.idling.rest();
        }
        if let Some(rest) = rest {
            tokio::spawn(idle::settle(Arc::clone(&self.shared), rest));
        }
        Ok(turned)
    }
}

/// A turn on a connection.
async fn run(
    shared: &Shared,
    mut session: Lease,
    worker: WorkerId,
    turn: Turn,
) -> Result<(Turned, Option<Rest>), StoreError> {
    let whole = shared.turning.whole(&turn.settles);
    session.begin();
    match Box::pin(transact(shared, &session, worker, turn, whole)).await {
        Ok((turned, short)) => {
            session.end();
            shared.turning.marks.add(turned.claimed.iter().chain(&turned.ahead).map(|task| task.place.lane));
            let passed = shared.turning.marks.due();
            let asks_again = turned.again != Again::WhenWoken;
            let is_left = !short.is_empty() || !passed.is_empty();
            Ok((turned, is_left.then_some(Rest { short, passed, session, asks_again })))
        }
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

/// The transaction. Gives, beside the outcome, the lanes that had less than they might have started.
async fn transact(
    shared: &Shared,
    session: &Lease,
    worker: WorkerId,
    turn: Turn,
    whole: HashSet<i64>,
) -> Result<(Turned, Vec<i64>), StoreError> {
    let Turn { settles, starts, want, ahead } = turn;
    let asked = Asked {
        worker,
        settles: &settles,
        starts: &starts,
        want,
        cursor: shared.turning.cursor.load(Ordering::Relaxed),
        told: shared.told_time(),
        whole,
    };
    let Loaded { mut scene, has_more, is_locked_out, sees_all, were, counted, heavy, back, missed } =
        scene::load(session, &asked).await?;
    let mut plan = if want.is_some() { scene.plan() } else { Plan::default() };
    plan.has_more |= has_more && !plan.grants.is_empty();
    let stuck = fit(session, &scene, &mut plan.grants, (&heavy, shared)).await?;
    // What nothing is counted for needs nothing written: then it commits in the flight that takes it.
    let is_bare = is_bare(&scene, &plan.grants) && settles.is_empty() && starts.is_empty() && ahead.is_none();
    let (taken, ()) =
        flight!(take(session, &scene, &plan.grants, (worker, shared)), session.run_if(is_bare, "COMMIT"))?;
    let mut short = Vec::new();
    let mut is_full = false;
    for grant in &plan.grants {
        let lane = &scene.lanes[grant.lane];
        let weights: Vec<u32> =
            taken.iter().filter(|task| task.place.lane == lane.id).map(|task| task.weight).collect();
        match weights.len() < grant.count as usize {
            true if !stuck.contains(&lane.id) => short.push(lane.id),
            true => {}
            false => is_full = true,
        }
        scene.book(*grant, &weights);
    }
    let whole = asked.whole;
    let lost = (0..settles.len()).filter(|index| !back.contains(index)).map(|index| settles[index].task.id);
    let lost = lost.chain(missed).collect();
    let ends = Ends::of(back.iter().map(|&index| &settles[index]), scene.now)?;
    // What one lane did not take is for the others.
    let is_left = !short.is_empty() || !stuck.is_empty();
    let may_be_others = plan.passed_over || plan.is_spent && !sees_all;
    let again = if plan.wants_locks {
        Again::WithLocks
    } else if scene.budget > 0 && (plan.has_more || is_left && (is_full || may_be_others)) {
        Again::Now
    } else if taken.is_empty() && is_locked_out {
        Again::Soon
    } else {
        Again::WhenWoken
    };
    let ahead = ahead::Room::of(ahead.filter(|_| want.is_some()), &scene, &shared.turning.marks);
    let changes = Changes::of(&scene, (&were, &counted), &stuck);
    let ahead = match is_bare {
        true => Vec::new(),
        false => Box::pin(write(session, changes, &scene, &ends, again, (worker, ahead))).await?,
    };
    if let Some(lane) = plan.grants.last().map(|grant| scene.lanes[grant.lane].id) {
        shared.turning.cursor.store(lane, Ordering::Relaxed);
    }
    shared.turning.settled(&settles, &whole);
    shared.turning.claimed(&taken);
    shared.turning.claimed(&ahead);
    Ok((Turned { claimed: taken, ahead, lost, now: scene.now, again }, short))
}

/// Whether these grants change no count: no key is locked, and nobody has a cap.
fn is_bare(scene: &Scene, grants: &[Grant]) -> bool {
    let mut queues = scene.queues.iter();
    !grants.is_empty()
        && scene.keys.is_empty()
        && scene.cluster.cap.is_none()
        && queues.all(|queue| queue.counter.cap.is_none())
}

/// Cuts grants of lanes with heavy tasks down to what fits, and gives the lanes whose next task does not. Their key is locked, so
/// nothing else is taken from them meanwhile.
async fn fit(
    session: &Lease,
    scene: &Scene,
    grants: &mut Vec<Grant>,
    (heavy, shared): (&HashSet<i64>, &Shared),
) -> Result<HashSet<i64>, StoreError> {
    let is_heavy = |grant: &&Grant| heavy.contains(&scene.lanes[grant.lane].id);
    let lanes: Vec<i64> = grants.iter().filter(is_heavy).map(|grant| scene.lanes[grant.lane].id).collect();
    if lanes.is_empty() {
        return Ok(HashSet::new());
    }
    let counts: Vec<i32> = grants.iter().filter(is_heavy).map(|grant| grant.count as i32).collect();
    let rooms: Vec<i64> = grants.iter().filter(is_heavy).map(|grant| i64::from(grant.room)).collect();
    let lows = shared.turning.marks.of(&lanes);
    let rows = session.query(FITTING, [&lanes, &counts, &rooms, &rows::stored(scene.now), &lows]).await?;
    let mut stuck = HashSet::new();
    for row in &rows {
        let (lane, fitting, standing): (i64, i64, i64) =
            (row.get("lane"), row.get("fitting"), row.get("standing"));
        if fitting < standing {
            stuck.insert(lane);
        }
        if let Some(grant) = grants.iter_mut().find(|grant| scene.lanes[grant.lane].id == lane) {
            grant.count = if fitting < standing { fitting as u32 } else { grant.count };
        }
    }
    grants.retain(|grant| grant.count > 0);
    Ok(stuck)
}

/// Moves tasks into a lease: the second flight.
async fn take(
    session: &Lease,
    scene: &Scene,
    grants: &[Grant],
    (worker, shared): (WorkerId, &Shared),
) -> Result<Vec<Claimed>, StoreError> {
    if grants.is_empty() {
        return Ok(Vec::new());
    }
    let lanes: Vec<i64> = grants.iter().map(|grant| scene.lanes[grant.lane].id).collect();
    let counts: Vec<i32> = grants.iter().map(|grant| grant.count as i32).collect();
    let alone: Vec<bool> = grants.iter().map(|grant| scene.lanes[grant.lane].key.is_some()).collect();
    let lows = shared.turning.marks.of(&lanes);
    let now = rows::stored(scene.now);
    let rows = session.query(TAKE, [&lanes, &counts, &alone, &now, &worker.0, &lows]).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let places: HashMap<i64, Place> = grants
        .iter()
        .map(|grant| {
            let lane = &scene.lanes[grant.lane];
            let key = lane.key.map(|key| scene.keys[key].id);
            (lane.id, Place { lane: lane.id, queue: lane.queue, key })
        })
        .collect();
    let lease: i64 = row.get("id");
    Ok(rows::claimed(row).map(|told| Claimed { lease, place: places[&told.place.lane], ..told }).collect())
}

/// Writes what changed, claims ahead, and commits: the third flight.
async fn write(
    session: &Lease,
    changes: Changes,
    scene: &Scene,
    ends: &Ends,
    again: Again,
    (worker, ahead): (WorkerId, Option<ahead::Room>),
) -> Result<Vec<Claimed>, StoreError> {
    let Ends { again: returned, dead, results, awaited } = ends;
    let cluster = scene.cluster.change() as i32;
    let mut lanes: Vec<i64> = returned.lanes.clone();
    lanes.sort_unstable();
    lanes.dedup();
    let (goes_back, now) = (!lanes.is_empty(), rows::stored(scene.now));
    let wakes = again == Again::WhenWoken && changes.makes_room;
    let (_, _, _, _, _, _, _, _, _, _, _, _, ahead, _) = flight!(
        session.query_if(goes_back, SHARE_LANES, [&lanes]),
        session.query_if(
            goes_back,
            settle::ADD_AGAIN,
            [
                &returned.ids,
                &returned.lanes,
                &returned.attempts,
                &returned.weights,
                &returned.due,
                &returned.good,
                &returned.records,
            ],
        ),
        session.query_if(
            !dead.ids.is_empty(),
            settle::ADD_DEAD,
            [
                &dead.ids,
                &dead.lanes,
                &dead.attempts,
                &dead.weights,
                &dead.reasons,
                &dead.errors,
                &now,
                &dead.records,
            ],
        ),
        session.query_if(
            !results.ids.is_empty(),
            settle::ADD_RESULTS,
            [&results.ids, &results.until, &results.results],
        ),
        session.query_if(
            !changes.keys.is_empty(),
            WRITE_KEYS,
            [&changes.keys, &changes.key_counts, &changes.key_rates],
        ),
        session.query_if(
            !changes.lanes.is_empty(),
            WRITE_LANES,
            [&changes.lanes, &changes.lane_states, &changes.lane_wakes],
        ),
        session.query_if(goes_back, READY_LANES, [&lanes]),
        session.query_if(cluster != 0 && scene.cluster.cap.is_some(), WRITE_CLUSTER, [&cluster]),
        session.query_if(!changes.queues.is_empty(), WRITE_QUEUES, [&changes.queues, &changes.queue_changes]),
        session.query_if(!awaited.is_empty(), ENDED, [awaited]),
        session.query_if(returned.due.iter().any(Option::is_some), DELAYED, []),
        session.query_if(wakes, WAKE, []),
        ahead::take(session, worker, ahead, now),
        session.run("COMMIT"),
    )?;
    Ok(ahead)
}
