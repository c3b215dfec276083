//! What workers held that is nobody's: of those that are gone, and claims whose reply was lost.
//!
//! Each lease is ended by a turn of its own. It waits for others' locks as long as upkeep does, and no longer.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_postgres::Row;

use super::{
    connect::{Lease, Line, Postgres},
    rows,
    session::{flight, is_locked},
    turn::Ending,
};
use crate::store::{Claimed, End, Place, Settle, StoreError, WorkerId};

/// In one round so many leases of lost workers are looked at.
const MOST_ORPHANS: i64 = 100_000;
/// And so many are waited for in vain: the rest of upkeep has to wait as long.
const MOST_IN_VAIN: usize = 3;
/// So long one is waited for when another one was waited for in vain, in this round or the last. Turns have a key for
/// milliseconds, and what has it for longer may have it for hours.
const SHORT_PATIENCE: Duration = Duration::from_millis(50);
/// At least so often it is looked for such leases, though nobody told of any.
const LOOK: Duration = Duration::from_secs(30);

const ORPHANS: &str = "SELECT id FROM leases WHERE NOT EXISTS (SELECT FROM workers WHERE workers.id = leases.worker) \
    ORDER BY id LIMIT $1";
const ORPHAN: &str = "SELECT id, worker, ids, lanes, attempts, weights, goods, records, done, ahead_until IS NOT NULL \
    AS is_ahead FROM leases WHERE id = $1";
const UNKNOWN: &str = "SELECT id, worker, ids, lanes, attempts, weights, goods, records, done, ahead_until IS NOT NULL \
    AS is_ahead FROM leases \
    WHERE worker = $1 AND id <> ALL($2)";
/// Which of these leases have something left of these keys. What it is, which may be much, is not read.
const BEHIND: &str = "SELECT id FROM leases WHERE id = ANY($1) \
    AND EXISTS (SELECT FROM unnest(ids, leases.lanes) AS held (id, lane) \
    WHERE held.id <> ALL(done) AND held.lane = ANY(ARRAY(SELECT lanes.id FROM lanes WHERE key = ANY($2))))";
/// Turns of a worker share its row until they are over. One may be under way still, though its connection broke and nobody waits
/// for its answer: what it claims is seen by a statement behind this one.
/// A [statement](super::straight) that is on its way and has not begun finds another era.
const AWAIT_TURNS: &str = "WITH own AS MATERIALIZED (SELECT id FROM workers WHERE id = $1 FOR UPDATE) \
    UPDATE workers SET era = era + 1 FROM own WHERE workers.id = own.id RETURNING era";
const LANES: &str = "SELECT id, queue, key FROM lanes WHERE id = ANY($1)";

pub(super) const STATEMENTS: &[&str] = &[ORPHANS, ORPHAN, UNKNOWN, BEHIND, AWAIT_TURNS, LANES];

/// Whether a process has to look for leases whose workers are gone: while a transaction is open elsewhere, to find that there
/// are none leads over all that were settled since it began. So those that are known are not looked for again.
pub(super) struct Search {
    /// Whether there may be some: this process, or another that told of it, removed a worker; or it may not have heard of that.
    are_expected: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When it was last looked for them, by the clock that nobody sets.
    looked: Duration,
    /// Those that are known and were left, in the order in which they are to be tried.
    left: Vec<i64>,
}

impl Default for Search {
    /// Whoever was there before may have left some.
    fn default() -> Self {
        Search { are_expected: AtomicBool::new(true), seen: Mutex::default() }
    }
}

impl Search {
    pub(super) fn expect(&self) {
        self.are_expected.store(true, Ordering::Relaxed);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to be looked for them now. What is told from now on is for the next time.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let mut seen = self.seen();
        let is_due =
            self.are_expected.swap(false, Ordering::Relaxed) || now.saturating_sub(seen.looked) >= LOOK;
        if is_due {
            seen.looked = now;
        }
        is_due
    }

    fn take_left(&self) -> Vec<i64> {
        std::mem::take(&mut self.seen().left)
    }

    /// These are for the next time. Another round of this process may have left some meanwhile.
    fn leave(&self, left: Vec<i64>) {
        let mut seen = self.seen();
        let theirs: HashSet<i64> = seen.left.iter().copied().collect();
        seen.left.extend(left.into_iter().filter(|lease| !theirs.contains(lease)));
    }
}

impl Postgres {
    /// Takes back what workers held that are gone, each lease once. What somebody has locked is left to the next time,
    /// and is the last then; so is what shares a key with it, and when some were locked, all the others: each is waited
    /// for. After the first one no other is waited for as long, nor the next time. Gives how many tasks that were, and
    /// what was locked.
    pub(super) async fn recover(&self) -> Result<(u32, Option<StoreError>), StoreError> {
        let search = &self.shared.orphans;
        let is_due = search.is_due(self.shared.passed());
        let known = search.take_left();
        let mut round = Round::after(!known.is_empty());
        let recovered = self.recover_all(is_due, known, &mut round).await.inspect_err(|_| search.expect())?;
        search.leave(round.left);
        Ok((recovered, round.error))
    }

    async fn recover_all(&self, is_due: bool, known: Vec<i64>, round: &mut Round) -> Result<u32, StoreError> {
        let leases = if is_due { self.orphans(known).await? } else { known };
        let (mut recovered, mut leases) = (0, VecDeque::from(leases));
        while round.times < MOST_IN_VAIN {
            let Some(lease) = leases.pop_front() else { break };
            let left = self.job(Line::Upkeep, move |_, session| async move {
                let lease = session.query(ORPHAN, [&lease]).await?;
                settles(&session, &lease, &End::Lost).await
            });
            // Somebody else may have taken it back by now.
            let Some(left) = left.await?.pop() else { continue };
            let keys = left.keys();
            match self.end(left, round.patience()).await {
                Ok(ended) => recovered += ended,
                Err(error) if is_locked(&error) => {
                    round.add(lease, error);
                    let behind = self.behind(leases.iter().copied().collect(), keys).await?;
                    let (same, others) = leases.into_iter().partition(|lease| behind.contains(lease));
                    round.left.extend::<VecDeque<i64>>(same);
                    leases = others;
                }
                Err(error) => return Err(error),
            }
        }
        // What was not tried comes first.
        round.left.splice(0..0, leases);
        Ok(recovered)
    }

    /// Leases whose workers are gone: those that were not known, and then these, as far as they are still there.
    async fn orphans(&self, mut known: Vec<i64>) -> Result<Vec<i64>, StoreError> {
        let found =
            self.job(Line::Upkeep, |_, session| async move { session.query(ORPHANS, [&MOST_ORPHANS]).await });
        let mut found: Vec<i64> = found.await?.iter().map(|row| row.get("id")).collect();
        if found.len() as i64 == MOST_ORPHANS {
            // There may be more.
            self.shared.orphans.expect();
        }
        let all: HashSet<i64> = found.iter().copied().collect();
        known.retain(|lease| all.contains(lease));
        let were_known: HashSet<i64> = known.iter().copied().collect();
        found.retain(|lease| !were_known.contains(lease));
        found.append(&mut known);
        Ok(found)
    }

    /// Those of these leases that share one of the keys.
    async fn behind(&self, leases: Vec<i64>, keys: Vec<i64>) -> Result<HashSet<i64>, StoreError> {
        if leases.is_empty() || keys.is_empty() {
            return Ok(HashSet::new());
        }
        let found =
            self.job(
                Line::Upkeep,
                move |_, session| async move { session.query(BEHIND, [&leases, &keys]).await },
            );
        Ok(found.await?.iter().map(|row| row.get("id")).collect())
    }

    /// Ends what is left of a lease, and tells how many tasks that were.
    async fn end(
        &self,
        Left { worker, lease, settles }: Left,
        patience: Option<Duration>,
    ) -> Result<u32, StoreError> {
        let all = settles.len();
        // Whatever this process remembers of it: nobody is left who would settle the rest.
        let turned = self.end_lease(worker, Ending { lease, patience }, settles).await?;
        Ok((all - turned.lost.len()) as u32)
    }

    /// Ends what this worker holds under other leases than these.
    pub(super) async fn take_back(
        &self,
        worker: WorkerId,
        known: Vec<i64>,
        end: End,
    ) -> Result<u32, StoreError> {
        let unknown = self.job(Line::Upkeep, move |shared, session| async move {
            let turns = session.query(AWAIT_TURNS, [&worker.0]);
            let (turns, leases) = flight!(turns, session.query(UNKNOWN, [&worker.0, &known]))?;
            shared.turning.straight.begin(worker, turns.first().map(|row| row.get(0)));
            settles(&session, &leases, &end).await
        });
        let mut returned = 0;
        for left in unknown.await? {
            returned += self.end(left, None).await?;
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

/// One round: which leases were waited for in vain, and what is left of it.
#[derive(Default)]
struct Round {
    was_held_up: bool,
    times: usize,
    error: Option<StoreError>,
    left: Vec<i64>,
}

impl Round {
    fn after(was_held_up: bool) -> Self {
        Round { was_held_up, ..Round::default() }
    }

    fn add(&mut self, lease: i64, error: StoreError) {
        self.times += 1;
        self.error = Some(error);
        self.left.push(lease);
    }

    /// How long the next one waits for others' locks. `None`: as long as its connection does.
    fn patience(&self) -> Option<Duration> {
        (self.was_held_up || self.times > 0).then_some(SHORT_PATIENCE)
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

#[cfg(test)]
mod tests {
    use super::*;

    // Seen to fail: with each of them waited for as long, or with the first of each round.
    #[test]
    fn s1_a_lease_that_stays_locked_is_waited_for_long_once() {
        let mut round = Round::after(false);
        assert_eq!(round.patience(), None, "nobody knows of a lock");
        let error = StoreError::Database { doing: "waiting", why: "in vain (55P03)".to_owned() };
        round.add(1, error);
        assert_eq!(round.patience(), Some(SHORT_PATIENCE));
        assert_eq!(Round::after(true).patience(), Some(SHORT_PATIENCE), "the first of a later round");
    }
}
