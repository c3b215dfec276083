//! What workers held that is nobody's: of those that are gone, and claims whose reply was lost.
//!
//! Each lease is ended by a turn of its own. It waits for others' locks as long as upkeep does, and no longer.

use std::{collections::HashSet, sync::atomic::Ordering};

use tokio_postgres::Row;

use super::{
    connect::{Lease, Line, Postgres},
    rows,
    session::{flight, is_locked},
};
use crate::store::{Claimed, End, Place, Settle, StoreError, WorkerId};

/// In one round so many leases of lost workers are looked at.
const MOST_ORPHANS: i64 = 100_000;
/// And so many are waited for in vain: the rest of upkeep has to wait as long.
const MOST_IN_VAIN: usize = 3;

const ORPHANS: &str = "SELECT id FROM leases WHERE NOT EXISTS (SELECT FROM workers WHERE workers.id = leases.worker) \
    ORDER BY id LIMIT $1";
const ORPHAN: &str = "SELECT id, worker, ids, lanes, attempts, weights, goods, records, done, ahead_until IS NOT NULL \
    AS is_ahead FROM leases WHERE id = $1";
const UNKNOWN: &str = "SELECT id, worker, ids, lanes, attempts, weights, goods, records, done, ahead_until IS NOT NULL \
    AS is_ahead FROM leases \
    WHERE worker = $1 AND id <> ALL($2)";
/// Turns of a worker share its row until they are over. One may be under way still, though its connection broke and nobody waits
/// for its answer: what it claims is seen by a statement behind this one.
const AWAIT_TURNS: &str = "SELECT FROM workers WHERE id = $1 FOR UPDATE";
const LANES: &str = "SELECT id, queue, key FROM lanes WHERE id = ANY($1)";

pub(super) const STATEMENTS: &[&str] = &[ORPHANS, ORPHAN, UNKNOWN, AWAIT_TURNS, LANES];

impl Postgres {
    /// Takes back what workers held that are gone, each lease once. What somebody has locked is left to the next time,
    /// which begins behind it; so is what shares a key with it, and when some were locked, all the others: each is waited
    /// for.
    pub(super) async fn recover(&self) -> Result<u32, StoreError> {
        let (mut recovered, mut locked) = (0, Locked::default());
        for lease in self.orphans().await? {
            let left = self.job(Line::Upkeep, move |_, session| async move {
                let lease = session.query(ORPHAN, [&lease]).await?;
                settles(&session, &lease, &End::Lost).await
            });
            // Somebody else may have taken it back by now.
            let Some(left) = left.await?.pop().filter(|left| !locked.shares_a_key(left)) else { continue };
            let keys = left.keys();
            match self.end(left).await {
                Ok(ended) => recovered += ended,
                Err(error) if is_locked(&error) => locked.add(lease, keys, error),
                Err(error) => return Err(error),
            }
            if locked.times == MOST_IN_VAIN {
                break;
            }
        }
        self.shared.recovered.store(locked.first, Ordering::Relaxed);
        locked.error.map_or(Ok(recovered), Err)
    }

    /// Leases whose workers are gone, beginning behind the one that was locked the last time.
    async fn orphans(&self) -> Result<Vec<i64>, StoreError> {
        let found =
            self.job(Line::Upkeep, |_, session| async move { session.query(ORPHANS, [&MOST_ORPHANS]).await });
        let mut orphans: Vec<i64> = found.await?.iter().map(|row| row.get("id")).collect();
        let tried = self.shared.recovered.load(Ordering::Relaxed);
        let behind = orphans.partition_point(|lease| *lease <= tried);
        orphans.rotate_left(behind);
        Ok(orphans)
    }

    /// Ends what is left of a lease, and tells how many tasks that were.
    async fn end(&self, Left { worker, lease, settles }: Left) -> Result<u32, StoreError> {
        let all = settles.len();
        // Whatever this process remembers of it: nobody is left who would settle the rest.
        let turned = self.end_lease(worker, lease, settles).await?;
        Ok((all - turned.lost.len()) as u32)
    }

    pub(super) async fn take_back(&self, worker: WorkerId, known: Vec<i64>) -> Result<u32, StoreError> {
        let unknown = self.job(Line::Upkeep, move |_, session| async move {
            let turns = session.query(AWAIT_TURNS, [&worker.0]);
            let (_, leases) = flight!(turns, session.query(UNKNOWN, [&worker.0, &known]))?;
            settles(&session, &leases, &End::Returned).await
        });
        let mut returned = 0;
        for left in unknown.await? {
            returned += self.end(left).await?;
        }
        Ok(returned)
    }
}

/// What is left of a lease, which may be nothing.
struct Left {
    worker: WorkerId,
    lease: i64,
    settles: Vec<Settle>,
}

impl Left {
    fn keys(&self) -> Vec<i64> {
        self.settles.iter().filter_map(|settle| settle.task.place.key).collect()
    }
}

/// The leases of one round that were waited for in vain.
#[derive(Default)]
struct Locked {
    first: i64,
    times: usize,
    keys: HashSet<i64>,
    error: Option<StoreError>,
}

impl Locked {
    fn add(&mut self, lease: i64, keys: Vec<i64>, error: StoreError) {
        if self.times == 0 {
            self.first = lease;
        }
        self.times += 1;
        self.keys.extend(keys);
        self.error = Some(error);
    }

    fn shares_a_key(&self, left: &Left) -> bool {
        left.keys().iter().any(|key| self.keys.contains(key))
    }
}

/// What is left of each of these leases, with one end for all.
async fn settles(session: &Lease, leases: &[Row], end: &End) -> Result<Vec<Left>, StoreError> {
    let mut found = Vec::new();
    for row in leases {
        let lanes = session.query(LANES, [&row.get::<_, Vec<i64>>("lanes")]).await?;
        let place = |lane: i64| {
            let row = lanes.iter().find(|row| row.get::<_, i64>("id") == lane)?;
            Some(Place { lane, queue: row.get("queue"), key: row.get("key") })
        };
        let done: HashSet<i64> = row.get::<_, Vec<i64>>("done").into_iter().collect();
        let settle = |task: Claimed| {
            let place = place(task.place.lane)?;
            // What was claimed ahead has not started, as far as anybody can know.
            let end = if row.get("is_ahead") { End::Returned } else { end.clone() };
            Some(Settle { task: Claimed { place, ..task }, end })
        };
        let settles =
            rows::claimed(row).filter(|task| !done.contains(&task.id.0)).filter_map(settle).collect();
        found.push(Left { worker: WorkerId(row.get("worker")), lease: row.get("id"), settles });
    }
    Ok(found)
}
