//! What time brings about. Any number of processes may do it: each row is handled by the process that locks
//! it first.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio_postgres::Row;

use super::{
    ahead::{GIVE_UP, LATE},
    connect::{Lease, Line, Postgres, Shared},
    identity, rows,
    send::{READY_LANES, SHARE_LANES},
    session::{failed, flight, is_locked},
    settle::BURY_CANCELLED,
};
use crate::clock::Look;
use crate::store::{CANCELLING, DEAD_KEPT, End, Kept, MOST_IDLE, NewWorker, SOON, StoreError, WorkerId};

/// No step handles more rows at once than these; what is left is handled at once again.
const BATCH: i64 = 1000;

/// Here and below the time is asked for once (`SELECT now_ns`), and not for each row: only then an index finds what is before it.
pub(super) const DUE: &str = "SELECT id, lane, id AS task FROM tasks WHERE due_at <= (SELECT now_ns($1)) ORDER BY \
    due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED";
/// The numbers are from after the lanes were shared, so that they are behind the lanes' marks.
const PLACE: &str = "WITH placed AS MATERIALIZED (SELECT id, nextval('task_ids') AS place \
    FROM unnest($1::bigint[]) WITH ORDINALITY AS due (id, nr) ORDER BY nr) \
    UPDATE tasks SET place = placed.place, due_at = NULL FROM placed WHERE tasks.id = placed.id";
pub(super) const WAKE_LANES: &str = "WITH waking AS (SELECT id FROM lanes WHERE state = 3 AND wake_at <= (SELECT now_ns($1)) \
    ORDER BY wake_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED), \
    woken AS (UPDATE lanes SET state = 1, wake_at = NULL FROM waking WHERE lanes.id = waking.id RETURNING lanes.id) \
    SELECT pg_notify('flowgate', 'w') FROM woken LIMIT 1";
/// All that wait for a rate or a rest until after $3, from a cursor on: what holds them is looked at anew.
const WAKE_ALL: &str = "WITH waking AS (SELECT id FROM lanes WHERE state = 3 AND id > $1 AND wake_at > $3 ORDER BY id \
    LIMIT $2 FOR NO KEY UPDATE), \
    woken AS (UPDATE lanes SET state = 1, wake_at = NULL FROM waking WHERE lanes.id = waking.id AND lanes.state = 3 \
    RETURNING lanes.id) \
    SELECT max(id) AS last, pg_notify('flowgate', 'w') FROM woken HAVING count(*) > 0";
/// No lease lasts longer than from now on: one that seems to was renewed before the clock was set back.
const CLAMP_LEASES: &str = "UPDATE workers SET lease_until = now_ns($1) + lease WHERE id IN (\
    SELECT id FROM workers WHERE lease_until > now_ns($1) + lease FOR NO KEY UPDATE SKIP LOCKED)";
/// Whoever had a lease before the clock was set forward, by $2, has one from now on; those as well whose turn is under
/// way, which share their row.
const SPARE_LEASES: &str = "UPDATE workers SET lease_until = now_ns($1) + lease WHERE id IN (\
    SELECT id FROM workers WHERE lease_until > now_ns($1) - $2::bigint FOR NO KEY UPDATE SKIP LOCKED)";
/// Lanes of heavy ones as for those that are cancelled. What somebody has is there next time.
pub(super) const EXPIRE: &str = "WITH late AS MATERIALIZED (SELECT id, lane, weight FROM tasks \
    WHERE good_until <= (SELECT now_ns($1)) ORDER BY good_until LIMIT $2 FOR UPDATE SKIP LOCKED), \
    had AS MATERIALIZED (SELECT id, state FROM lanes WHERE id IN (SELECT lane FROM late WHERE weight > 1) ORDER BY id \
    FOR NO KEY UPDATE SKIP LOCKED), \
    gone AS (DELETE FROM tasks USING late WHERE tasks.id = late.id \
    AND (late.weight = 1 OR late.lane IN (SELECT id FROM had)) \
    RETURNING tasks.id, tasks.lane, attempt, tasks.weight, record), \
    looked AS (UPDATE lanes SET state = 1 FROM had WHERE lanes.id = had.id AND had.state = 2 RETURNING lanes.id), \
    told AS (INSERT INTO dead (id, queue, key, priority, limits, attempt, weight, reason, error, at, record) \
    SELECT gone.id, queues.name, keys.name, lanes.priority, lanes.limits, attempt, weight, 'expired', '', now_ns($1), record \
    FROM gone JOIN lanes ON lanes.id = gone.lane JOIN queues ON queues.id = lanes.queue LEFT JOIN keys ON keys.id = lanes.key \
    RETURNING id) SELECT pg_notify('flowgate', 'e' || id), (SELECT pg_notify('flowgate', 'w') FROM looked LIMIT 1) FROM told";
/// All processes are told: this one may be gone before it has taken back what they held. So is this one: its connection may be.
const BURY: &str = "WITH gone AS (DELETE FROM workers WHERE id IN (\
    SELECT id FROM workers WHERE lease_until < (SELECT now_ns($1)) LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id) \
    SELECT pg_notify('flowgate', 'b') FROM gone";
const NOW: &str = "SELECT now_ns($1)";
/// A task that somebody still holds may go back to its line, however long ago it was cancelled: that is looked at again after $4.
pub(super) const FORGET: &str = "WITH old_results AS (DELETE FROM results WHERE id IN (\
    SELECT id FROM results WHERE until <= (SELECT now_ns($1)) LIMIT $2 FOR UPDATE SKIP LOCKED)), \
    old AS MATERIALIZED (SELECT task FROM cancels WHERE until <= (SELECT now_ns($1)) LIMIT $2 FOR UPDATE SKIP LOCKED), \
    held AS MATERIALIZED (SELECT unnest(ids) AS task FROM leases WHERE EXISTS (SELECT FROM old)), \
    old_cancels AS (DELETE FROM cancels WHERE task IN (SELECT task FROM old) AND task NOT IN (SELECT task FROM held) \
    RETURNING task), \
    kept_cancels AS (UPDATE cancels SET until = now_ns($1) + $4::bigint \
    WHERE task IN (SELECT task FROM old) AND task NOT IN (SELECT task FROM old_cancels)), \
    old_dead AS (DELETE FROM dead WHERE id IN (\
    SELECT id FROM dead WHERE at <= (SELECT now_ns($1)) - $3::bigint ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)) \
    DELETE FROM dedupes WHERE name IN (SELECT name FROM dedupes WHERE until <= (SELECT now_ns($1)) LIMIT $2 FOR UPDATE \
    SKIP LOCKED)";
const NEXT: &str = "SELECT least((SELECT min(due_at) FROM tasks WHERE due_at IS NOT NULL), \
    (SELECT min(good_until) FROM tasks WHERE good_until IS NOT NULL), \
    (SELECT min(wake_at) FROM lanes WHERE state = 3), (SELECT min(lease_until) FROM workers), \
    (SELECT min(ahead_until) FROM leases WHERE ahead_until IS NOT NULL)) - now_ns($1)";

const NEXT_RESTED: &str = "SELECT min(wake_at) - now_ns($1) FROM lanes WHERE state = 3";

/// Keys that hold nothing, from a cursor on; and the same keys' lanes, had alone.
const SOME_KEYS: &str = "SELECT id FROM keys WHERE id > $1 ORDER BY id LIMIT $2";
const RESTING_KEYS: &str = "SELECT id, rates FROM keys WHERE id = ANY($1) \
    AND in_use = 0 AND NOT paused AND pinned IS NULL AND NOT chosen \
    AND NOT EXISTS (SELECT FROM lanes WHERE lanes.key = keys.id AND state <> 0) ORDER BY id FOR UPDATE SKIP LOCKED";
const OWN_RESTING: &str = "SELECT FROM lanes WHERE key = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED";
/// What was claimed ahead counts nowhere, and may go back to its lane.
const SWEEP_LANES: &str = "WITH swept AS (DELETE FROM lanes WHERE key = ANY($1) AND state = 0 \
    AND NOT EXISTS (SELECT FROM tasks WHERE tasks.lane = lanes.id) \
    AND id NOT IN (SELECT leases.lanes[1] FROM leases WHERE ahead_until IS NOT NULL) \
    AND id IN (SELECT id FROM lanes WHERE key = ANY($1) FOR UPDATE SKIP LOCKED) RETURNING id) \
    DELETE FROM marks USING swept WHERE marks.lane = swept.id";
/// Of keys that are in use, with more lanes than anybody needs: those with nothing in them, had alone; and of these,
/// what no lease knows.
const SPARE_LANES: &str = "SELECT lanes.id FROM lanes JOIN (SELECT key FROM lanes WHERE key = ANY($1) GROUP BY key \
    HAVING count(*) > $2) \
    AS crowded ON crowded.key = lanes.key ORDER BY lanes.id FOR UPDATE OF lanes SKIP LOCKED";
const SWEEP_SPARE: &str = "WITH swept AS (DELETE FROM lanes WHERE id = ANY($1) \
    AND NOT EXISTS (SELECT FROM tasks WHERE tasks.lane = lanes.id) \
    AND id NOT IN (SELECT held.lane FROM leases CROSS JOIN LATERAL unnest(leases.lanes) AS held (lane)) RETURNING id) \
    DELETE FROM marks USING swept WHERE marks.lane = swept.id";
const SWEEP_KEYS: &str =
    "DELETE FROM keys WHERE id = ANY($1) AND NOT EXISTS (SELECT FROM lanes WHERE lanes.key = keys.id)";

pub(super) const STATEMENTS: &[&str] = &[
    identity::TABLES,
    DUE,
    PLACE,
    WAKE_LANES,
    WAKE_ALL,
    CLAMP_LEASES,
    SPARE_LEASES,
    EXPIRE,
    BURY,
    NOW,
    FORGET,
    NEXT,
    NEXT_RESTED,
    SOME_KEYS,
    RESTING_KEYS,
    OWN_RESTING,
    SWEEP_LANES,
    SPARE_LANES,
    SWEEP_SPARE,
    SWEEP_KEYS,
    SHARE_LANES,
    READY_LANES,
    LATE,
    GIVE_UP,
    BURY_CANCELLED,
];

impl Postgres {
    pub(super) async fn keep_up(&self) -> Result<Kept, StoreError> {
        let mut kept =
            self.job(Line::Upkeep, |shared, session| async move { keep_up(&shared, session).await }).await?;
        let (recovered, held_up) = self.recover().await?;
        kept.recovered += recovered;
        kept.held_up = kept.held_up.or(held_up);
        Ok(kept)
    }

    pub(super) async fn wake_lanes(&self) -> Result<Option<Duration>, StoreError> {
        self.job(Line::Upkeep, |shared, session| async move {
            let told = shared.told_time();
            let (_, next) =
                flight!(session.query(WAKE_LANES, [&told, &BATCH]), session.query(NEXT_RESTED, [&told]))?;
            Ok(wait(&next))
        })
        .await
    }

    pub(super) async fn make_known(&self, worker: NewWorker) -> Result<WorkerId, StoreError> {
        self.job(Line::Rest, move |shared, session| async move {
            let client = session.client();
            let ids: Option<Vec<i64>> = match worker.queues.is_empty() {
                true => None,
                false => {
                    let add =
                        "INSERT INTO queues (name) SELECT DISTINCT unnest($1::text[]) ON CONFLICT DO NOTHING";
                    client.execute(add, &[&worker.queues]).await.map_err(failed("creating queues"))?;
                    let find = "SELECT id FROM queues WHERE name = ANY($1)";
                    let found =
                        client.query(find, &[&worker.queues]).await.map_err(failed("looking up queues"))?;
                    Some(found.iter().map(|row| row.get(0)).collect())
                }
            };
            let lease = super::columns::nanos(worker.lease);
            let add = "INSERT INTO workers (name, slots, queues, lease, lease_until, since, minds_marks) \
                SELECT $1, $2, $3, $4, now + $4, now, true FROM now_ns($5) AS now RETURNING id";
            let slots = i32::try_from(worker.slots).unwrap_or(i32::MAX);
            let row = client.query_one(add, &[&worker.name, &slots, &ids, &lease, &shared.told_time()]).await;
            Ok(WorkerId(row.map_err(failed("registering a worker"))?.get(0)))
        })
        .await
    }

    pub(super) async fn renew(&self, worker: WorkerId) -> Result<bool, StoreError> {
        // Not among the rest, where somebody may count a long line, nor with the upkeep, which waits for rows that
        // others have: either may take longer than a lease lasts.
        let renewed = self.job(Line::Beats, move |shared, mut session| async move {
            // A renewal that is lost with the server shortens a lease, and no more: nobody waits for the disk.
            let renew = format!(
                "BEGIN; SET LOCAL synchronous_commit TO off; \
                 UPDATE workers SET lease_until = now_ns({}) + lease WHERE id = {}; COMMIT",
                shared.told_time().map_or_else(|| "NULL".to_owned(), |told| told.to_string()),
                worker.0
            );
            session.begin();
            let said = session.client().simple_query(&renew).await.map_err(failed("renewing a lease"))?;
            session.end();
            let changed = |message: &tokio_postgres::SimpleQueryMessage| {
                matches!(message, tokio_postgres::SimpleQueryMessage::CommandComplete(1))
            };
            let is_known = said.iter().any(changed);
            if !is_known {
                shared.turning.forget(worker);
            }
            Ok(is_known)
        });
        match renewed.await {
            Err(_) if self.shared.known.is_replaced() => Err(StoreError::Gone { worker }),
            renewed => renewed,
        }
    }

    pub(super) async fn make_unknown(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.job(Line::Rest, move |shared, session| async move {
            let remove = "WITH gone AS (DELETE FROM workers WHERE id = $1 RETURNING id) \
                SELECT pg_notify('flowgate', 'b') FROM gone";
            let removed = session.client().execute(remove, &[&worker.0]).await;
            shared.turning.forget(worker);
            removed.map(drop).map_err(failed("removing a worker"))
        })
        .await?;
        match self.take_back(worker, Vec::new(), End::Lost).await {
            // Whoever keeps up next sees to it.
            Err(error) if !is_locked(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

async fn keep_up(shared: &Arc<Shared>, mut session: Lease) -> Result<Kept, StoreError> {
    let told = shared.told_time();
    let tables = session.query(identity::TABLES, []).await?;
    shared.known.judge_tables(tables.first().map_or("", |row| row.get(0)))?;
    let mut locked = None;
    let due = later(join_lines(&mut session, (DUE, PLACE), told).await, &mut session, &mut locked).await?;
    let given_up =
        later(join_lines(&mut session, (LATE, GIVE_UP), told).await, &mut session, &mut locked).await?;
    let expired = later(session.query(EXPIRE, [&told, &BATCH]).await, &mut session, &mut locked).await?;
    later(session.query(WAKE_LANES, [&told, &BATCH]).await, &mut session, &mut locked).await?;
    later(mind_the_clock(shared, &session, told).await, &mut session, &mut locked).await?;
    let bury = session.query(BURY, [&told, &BATCH]).await;
    if !later(bury, &mut session, &mut locked).await?.is_empty() {
        shared.orphans.expect();
    }
    let (kept, again) = (super::columns::nanos(DEAD_KEPT), super::columns::nanos(CANCELLING));
    later(session.query(FORGET, [&told, &BATCH, &kept, &again]).await, &mut session, &mut locked).await?;
    later(sweep(shared, &mut session).await, &mut session, &mut locked).await?;
    let next = wait(&session.query(NEXT, [&told]).await?);
    Ok(Kept { due, expired: expired.len() as u32, recovered: given_up, next, held_up: locked })
}

/// What came of a step. One that waited in vain for a lock that somebody has is left to the next round, and the others go on.
async fn later<T: Default>(
    came: Result<T, StoreError>,
    session: &mut Lease,
    locked: &mut Option<StoreError>,
) -> Result<T, StoreError> {
    match came {
        Err(error) if is_locked(&error) => {
            session.roll_back().await;
            *locked = Some(error);
            Ok(T::default())
        }
        came => came,
    }
}

/// How long it is until a moment, if there is one.
fn wait(next: &[Row]) -> Option<Duration> {
    let nanos: Option<i64> = next.first().and_then(|row| row.get(0));
    nanos.map(|nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or_default()))
}

/// Moments that were reckoned before the clock was set back are not waited for. Whether it was while nobody looked,
/// nobody knows: so those that are not soon are looked at when a process begins.
async fn mind_the_clock(shared: &Shared, session: &Lease, told: Option<i64>) -> Result<(), StoreError> {
    session.query(CLAMP_LEASES, [&told]).await?;
    let asked = shared.passed();
    let now: i64 = session.query(NOW, [&told]).await?.first().map_or(0, |row| row.get(0));
    // However long the answer took, it took none of what passed before it: so a server that is slow is not taken for a
    // clock that was set.
    let (look, answered) = (Look { showed: rows::tick(now), passed: asked }, shared.passed());
    let seen = || shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, note) = (*seen(), |look: Look| *seen() = Some(look));
    let late = Look { passed: answered, ..look };
    if let Some(by) = before.and_then(|seen| late.set_forward_since(&seen)) {
        session.query(SPARE_LEASES, [&told, &super::columns::nanos(by)]).await?;
    }
    let from = match before {
        None => Some(now + super::columns::nanos(SOON)),
        Some(seen) => look.is_before(&seen).then_some(i64::MIN),
    };
    if let Some(from) = from {
        let mut last = Some(0_i64);
        while let Some(after) = last {
            let woken = session.query(WAKE_ALL, [&after, &BATCH, &from]).await?;
            last = woken.first().and_then(|row| row.get("last"));
        }
    }
    // Not before: what failed is done by the next look.
    note(look);
    Ok(())
}

/// Tasks join their lines: delayed ones that are due, at the end; those claimed ahead that did not start, at the front. The first
/// statement finds them and their lanes, the second moves them when the lanes are shared.
async fn join_lines(
    session: &mut Lease,
    (find, join): (&'static str, &'static str),
    told: Option<i64>,
) -> Result<u32, StoreError> {
    session.begin();
    let (_, found) = flight!(session.run("BEGIN"), session.query(find, [&told, &BATCH]))?;
    let ids: Vec<i64> = found.iter().map(|row| row.get("id")).collect();
    let tasks: Vec<i64> = found.iter().map(|row| row.get("task")).collect();
    let mut lanes: Vec<i64> = found.iter().map(|row| row.get("lane")).collect();
    lanes.sort_unstable();
    lanes.dedup();
    flight!(
        session.query_if(!ids.is_empty(), SHARE_LANES, [&lanes]),
        session.query_if(!ids.is_empty(), join, [&ids]),
        session.query_if(!ids.is_empty(), BURY_CANCELLED, [&tasks, &told]),
        session.query_if(!ids.is_empty(), READY_LANES, [&lanes]),
        session.run("COMMIT"),
    )?;
    session.end();
    Ok(ids.len() as u32)
}

/// Keys that hold nothing leave nothing behind: a stretch of them each time.
async fn sweep(shared: &Shared, session: &mut Lease) -> Result<(), StoreError> {
    let cursor = shared.swept.load(Ordering::Relaxed);
    session.begin();
    let (_, all) = flight!(session.run("BEGIN"), session.query(SOME_KEYS, [&cursor, &BATCH]))?;
    let keys: Vec<i64> = all.iter().map(|row| row.get(0)).collect();
    let spare = session.query(SPARE_LANES, [&keys, &i64::from(MOST_IDLE)]).await?;
    let spare: Vec<i64> = spare.iter().map(|row| row.get(0)).collect();
    let (_, resting) = flight!(
        session.query_if(!spare.is_empty(), SWEEP_SPARE, [&spare]),
        session.query(RESTING_KEYS, [&keys])
    )?;
    let now = session.query(NOW, [&shared.told_time()]).await?;
    let now = rows::tick(now.first().map_or(0, |row| row.get(0)));
    let mut keys = Vec::new();
    for row in &resting {
        let mut ledger = crate::ledger::Ledger::read(row.get("rates"));
        ledger.tidy(now);
        if ledger == crate::ledger::Ledger::default() {
            keys.push(row.get::<_, i64>("id"));
        }
    }
    flight!(
        session.query_if(!keys.is_empty(), OWN_RESTING, [&keys]),
        session.query_if(!keys.is_empty(), SWEEP_LANES, [&keys]),
        session.query_if(!keys.is_empty(), SWEEP_KEYS, [&keys]),
        session.run("COMMIT"),
    )?;
    session.end();
    let last = all.last().filter(|_| all.len() as i64 == BATCH).map_or(0, |row| row.get(0));
    shared.swept.store(last, Ordering::Relaxed);
    Ok(())
}
