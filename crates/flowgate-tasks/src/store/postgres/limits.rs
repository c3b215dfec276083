//! Limits change live.
//!
//! A cap counts from the moment it is set: whoever sets one has the leases to itself while it counts. Turns that come
//! meanwhile stand behind it, so it waits for those under way for a moment at a time, and lets the others on before it tries
//! again: one of them may wait for a key that somebody has for hours.

use std::{sync::Arc, time::Duration};

use super::{
    connect::{Line, Postgres},
    rows,
    session::{Tries, failed, is_locked, waited_in_vain},
};
use crate::{
    store::{KeyChange, QueueLimits, StoreError, pins},
    terms,
};

/// Nobody claims or settles until the transaction ends.
const ALONE: &str = "LOCK TABLE leases IN SHARE ROW EXCLUSIVE MODE";
/// So long one waits for that, and for whatever it needs then: a turn takes milliseconds, a slow one a second. Between two tries
/// all others have as long.
const WAITS_MS: [u64; 4] = [250, 500, 1000, 2000];
/// So long a change waits for its own rows, and as long between two tries.
const A_MOMENT: Duration = Duration::from_millis(500);
/// Who holds them up: one that has something which others wait for, or else leases or keys, and waits for nothing itself; of
/// several, the one that has been at it for longest.
const CULPRIT: &str = "WITH waiting AS MATERIALIZED (SELECT DISTINCT pid FROM pg_locks WHERE NOT granted), \
    blocking AS MATERIALIZED (SELECT unnest(pg_blocking_pids(pid)) AS pid FROM waiting) \
    SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::bigint FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM waiting) \
    AND (pid IN (SELECT pid FROM blocking) OR pid IN (SELECT pid FROM pg_locks \
    WHERE relation IN ('leases'::regclass, 'keys'::regclass) AND mode <> 'AccessShareLock')) \
    ORDER BY pid IN (SELECT pid FROM blocking) DESC, xact_start LIMIT 1";

impl Postgres {
    pub(super) async fn cap_cluster(&self, cap: Option<u32>) -> Result<(), StoreError> {
        let cap = cap.map(|cap| i32::try_from(cap).unwrap_or(i32::MAX));
        self.change_alone(move |transaction| {
            Box::pin(async move {
                transaction.batch_execute(ALONE).await?;
                let set = "UPDATE cluster SET cap = $1, in_use = CASE WHEN $1::int IS NULL THEN 0 ELSE \
                    (SELECT coalesce(sum(cardinality(ids) - cardinality(done)), 0) FROM leases \
                    WHERE ahead_until IS NULL) END";
                transaction.execute(set, &[&cap]).await.map(|_| ((), None))
            })
        })
        .await
    }

    pub(super) async fn choose_latest(&self, is_latest: bool) -> Result<(), StoreError> {
        self.change_alone(move |transaction| {
            Box::pin(async move {
                // Every server says so when it starts: where it is so already, nobody has to wait.
                let is_so = "SELECT latest = $1 AND NOT EXISTS (SELECT FROM keys WHERE NOT chosen AND latest <> $1) FROM cluster";
                if transaction.query_one(is_so, &[&is_latest]).await?.get(0) {
                    return Ok(((), None));
                }
                // Turns first, which end with the cluster's row; then all who have keys, and those who make one by the
                // rule so far.
                transaction.batch_execute(ALONE).await?;
                transaction.batch_execute("LOCK TABLE keys IN EXCLUSIVE MODE").await?;
                transaction.execute("UPDATE cluster SET latest = $1 WHERE latest <> $1", &[&is_latest]).await?;
                let set = "WITH changed AS (UPDATE keys SET latest = $1 WHERE NOT chosen AND latest <> $1 RETURNING keys.id), \
                    held AS (SELECT lanes.id FROM lanes JOIN changed ON lanes.key = changed.id WHERE state IN (2, 3) \
                    ORDER BY lanes.id FOR NO KEY UPDATE OF lanes) \
                    UPDATE lanes SET state = 1, wake_at = NULL FROM held WHERE lanes.id = held.id";
                transaction.execute(set, &[&is_latest]).await.map(|_| ((), None))
            })
        })
        .await
    }

    pub(super) async fn change_queue(&self, queue: QueueLimits) -> Result<(), StoreError> {
        self.change_alone(move |transaction| {
            let queue = queue.clone();
            Box::pin(async move {
                let max = queue.max.map(|max| i32::try_from(max).unwrap_or(i32::MAX));
                transaction.batch_execute(ALONE).await?;
                let set = "INSERT INTO queues (name, priority, max) VALUES ($1, $2, $3) \
                    ON CONFLICT (name) DO UPDATE SET priority = excluded.priority, max = excluded.max RETURNING id";
                let id: i64 = transaction.query_one(set, &[&queue.name, &queue.priority, &max]).await?.get(0);
                let count = "UPDATE queues SET in_use = CASE WHEN max IS NULL THEN 0 ELSE (SELECT count(*) FROM leases \
                    CROSS JOIN LATERAL unnest(ids, leases.lanes) AS held (id, lane) JOIN lanes ON lanes.id = held.lane \
                    WHERE lanes.queue = $1 AND held.id <> ALL(done) AND ahead_until IS NULL) END WHERE id = $1";
                transaction.execute(count, &[&id]).await.map(|_| ((), None))
            })
        })
        .await
    }

    pub(super) async fn stop_queue(&self, name: String, is_paused: bool) -> Result<bool, StoreError> {
        self.change_rows(move |transaction| {
            let name = name.clone();
            Box::pin(async move {
                let set = "UPDATE queues SET paused = $2 WHERE name = $1";
                transaction.execute(set, &[&name, &is_paused]).await.map(|changed| (changed > 0, None))
            })
        })
        .await
    }

    pub(super) async fn alter_key(&self, key: String, change: KeyChange) -> Result<(), StoreError> {
        let told = self.shared.told_time();
        if let KeyChange::Pin(limits) = &change {
            terms::check(limits)?;
        }
        if let KeyChange::Halves { max, rate } = &change {
            // What cannot be pinned is refused here; what can goes with what is pinned already.
            pins::changed(None, *max, *rate)?;
        }
        self.change_rows(move |transaction| {
            let (key, change) = (key.clone(), change.clone());
            Box::pin(async move {
                // One that is there is locked, so that it is not swept away before it is changed.
                let add = "INSERT INTO keys (name, latest) SELECT $1, latest FROM cluster \
                    ON CONFLICT (name) DO UPDATE SET name = excluded.name";
                transaction.execute(add, &[&key]).await?;
                if change.is_booked() {
                    rebook(transaction, &key, &change, told).await?;
                }
                let text = match &change {
                    KeyChange::Pin(limits) => terms::to_text(Some(limits)),
                    KeyChange::Halves { max, rate } => {
                        let find = "SELECT pinned FROM keys WHERE name = $1 FOR NO KEY UPDATE";
                        let row = transaction.query_one(find, &[&key]).await?;
                        let known: Option<&str> = row.get(0);
                        let known = known.and_then(|known| terms::read(known).0);
                        let pinned = pins::changed(known, *max, *rate).ok().flatten();
                        terms::to_text(pinned.as_ref())
                    }
                    _ => String::new(),
                };
                let (set, value): (&str, Option<&str>) = match &change {
                    KeyChange::Pause => ("paused = true", None),
                    KeyChange::Resume => ("paused = false", None),
                    KeyChange::Pin(_) => ("pinned = $2", Some(&text)),
                    KeyChange::Halves { .. } => ("pinned = nullif($2, '')", Some(&text)),
                    KeyChange::Unpin => ("pinned = NULL", None),
                    KeyChange::Latest(true) => ("latest = true, chosen = true", None),
                    KeyChange::Latest(false) => ("latest = false, chosen = true", None),
                    KeyChange::LatestAsOthers => {
                        ("latest = (SELECT latest FROM cluster), chosen = false", None)
                    }
                    KeyChange::ResetRate
                    | KeyChange::Rest { .. }
                    | KeyChange::RestOn { .. }
                    | KeyChange::Wake { .. }
                    | KeyChange::WakeAll => ("name = name", None),
                };
                let set = format!("UPDATE keys SET {set} WHERE name = $1 AND ($2::text IS NULL OR true) RETURNING id");
                let id: i64 = transaction.query_one(&set, &[&key, &value]).await?.get(0);
                // Everything of it that waits is looked at anew.
                let ready = "WITH held AS (SELECT id FROM lanes WHERE key = $1 AND state IN (2, 3) ORDER BY id FOR NO \
                    KEY UPDATE) \
                    UPDATE lanes SET state = 1, wake_at = NULL FROM held WHERE lanes.id = held.id";
                transaction.execute(ready, &[&id]).await.map(|_| ((), Some(id)))
            })
        })
        .await
    }

    /// A change for which all turns have to wait: a few tries, each on a connection that others have in between.
    async fn change_alone<F>(&self, work: F) -> Result<(), StoreError>
    where
        F: for<'a> Fn(&'a tokio_postgres::Client) -> Changing<'a, ()> + Send + Sync + 'static,
    {
        let (work, mut pause, mut in_vain) = (Arc::new(work), Duration::ZERO, Ok(()));
        for wait in WAITS_MS.map(Duration::from_millis) {
            tokio::time::sleep(pause).await;
            let work = Arc::clone(&work);
            match self.change(wait, move |client| work(client)).await {
                Err(error) if is_locked(&error) => (pause, in_vain) = (wait, Err(error)),
                changed => return changed,
            }
        }
        let culprit = self.job(Line::Rest, |_, session| async move {
            let found = session.client().query_opt(CULPRIT, &[]).await;
            found.map_err(failed("looking for who holds up a change"))
        });
        match culprit.await.ok().flatten() {
            Some(row) => Err(StoreError::HeldUp { by: told(row.get(0), row.get(1)) }),
            None => in_vain,
        }
    }

    /// A change that waits for its own rows only, as long as whoever has them likes; but for a moment at a time, for on the same
    /// connection logs are written and everything is looked at.
    async fn change_rows<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a> Fn(&'a tokio_postgres::Client) -> Changing<'a, T> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        loop {
            let work = Arc::clone(&work);
            match self.change(A_MOMENT, move |client| work(client)).await {
                Err(error) if waited_in_vain(&error) => tokio::time::sleep(A_MOMENT).await,
                changed => return changed,
            }
        }
    }

    /// One transaction, after which everybody looks again, and whoever has something at hand of the key it tells, or of
    /// any, hands it back. Told to give way to another one, it tries again. It waits so long for each of others' locks.
    async fn change<T, F>(&self, patience: Duration, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a> Fn(&'a tokio_postgres::Client) -> Changing<'a, T> + Send + 'static,
    {
        self.job(Line::Rest, move |_, mut session| async move {
            let mut tries = Tries::default();
            let begin = format!("BEGIN; SET LOCAL lock_timeout TO '{}ms'", patience.as_millis());
            loop {
                session.begin();
                session.run(&begin).await?;
                match work(session.client()).await {
                    Ok((value, key)) => {
                        let key = key.map(|key: i64| key.to_string()).unwrap_or_default();
                        let tell = format!(
                            "SELECT pg_notify('flowgate', 'w'), pg_notify('flowgate', 'l{key}'); COMMIT"
                        );
                        session.run(&tell).await?;
                        session.end();
                        return Ok(value);
                    }
                    Err(error) => {
                        session.roll_back().await;
                        let error = failed("changing limits")(error);
                        if !tries.may_go_on_after(&error) {
                            return Err(error);
                        }
                    }
                }
            }
        })
        .await
    }
}

/// Who holds up a change, and for how many seconds, in words.
fn told(process: i32, open: Option<i64>) -> String {
    let age = open.map_or_else(String::new, |open| format!(", in a transaction that is {open} s old,"));
    format!("process {process} of the database server{age}")
}

/// Writes what is kept of a key's rates and rests after this change.
async fn rebook(
    client: &tokio_postgres::Client,
    key: &str,
    change: &KeyChange,
    told: Option<i64>,
) -> Result<(), tokio_postgres::Error> {
    let find = "SELECT rates, now_ns($2) FROM keys WHERE name = $1 FOR NO KEY UPDATE";
    let row = client.query_one(find, &[&key, &told]).await?;
    let kept = change.book(row.get(0), rows::tick(row.get(1)));
    client.execute("UPDATE keys SET rates = $2 WHERE name = $1", &[&key, &kept]).await.map(drop)
}

/// A change, and the number of the key it is of, if it is of one.
type Changed<T> = Result<(T, Option<i64>), tokio_postgres::Error>;
type Changing<'a, T> = std::pin::Pin<Box<dyn Future<Output = Changed<T>> + Send + 'a>>;
