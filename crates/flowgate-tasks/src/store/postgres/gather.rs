//! What a turn reads and locks before it decides, and in which order (see the store's own page): the first flight of its
//! transaction.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use tokio_postgres::Row;

use super::{
    ahead::START,
    connect::Lease,
    ready::{ReadyLanes, ready_lanes},
    session::{begun, flight},
};
use crate::store::{Claimed, Settle, StoreError, Want, WorkerId};

/// Whether a worker serves a lane's queue: one of those it names; if it names none, all but the server's own,
/// [`SERVER_QUEUE`](crate::SERVER_QUEUE).
macro_rules! serves {
    ($worker:literal) => {
        concat!("EXISTS (SELECT FROM workers WHERE id = ", $worker, " AND ", is_served!(), ")")
    };
}
/// The same of the worker whose row is at hand.
macro_rules! is_served {
    () => {
        "coalesce(lanes.queue = ANY(workers.queues), \
         lanes.queue IS DISTINCT FROM (SELECT id FROM queues WHERE name = 'flowgate:messages'))"
    };
}
pub(super) use is_served;
pub(super) use serves;

/// No turn looks at more lanes of one queue than these, nor at fewer than these.
const MOST_LANES: u32 = 512;
const LEAST_LANES: u32 = 16;

/// Whoever counts all that is claimed waits for us, or we for them, before anything is locked.
pub(super) const BEGIN: &str = "BEGIN DEFERRABLE; LOCK TABLE leases IN ROW EXCLUSIVE MODE";
const WORKER: &str = "SELECT now_ns($2) AS now, worker.id AS worker FROM (SELECT) AS one \
    LEFT JOIN LATERAL (SELECT id FROM workers WHERE id = $1 FOR KEY SHARE) AS worker ON true";
const CLUSTER: &str = "SELECT cap, in_use FROM cluster";
const LOCK_CLUSTER: &str = "SELECT cap, in_use FROM cluster WHERE cap IS NOT NULL FOR NO KEY UPDATE";
/// One that the worker does not serve is as if it were paused: what comes back may have held its lanes, and those are looked at:
/// see `serves`.
const QUEUES: &str = "SELECT id, priority, max, in_use, \
    paused OR NOT coalesce(id = ANY((SELECT queues FROM workers WHERE id = $1)::bigint[]), name <> \
    'flowgate:messages') AS paused FROM queues";
const LOCK_QUEUES: &str = "SELECT FROM queues WHERE max IS NOT NULL ORDER BY id FOR NO KEY UPDATE";
const LOCK_KEYS: &str = "SELECT id, in_use, paused, pinned, sent, latest, rates FROM keys \
    WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";
/// Both tell which of a lease's tasks had been settled before. By `worker + 0`, so that they are found by their own
/// numbers: the index by worker leads over all that it ever held, for as long as somebody's transaction keeps those.
pub(super) const GIVE_BACK: &str = concat!(
    "DELETE FROM leases WHERE id = ANY($1) AND worker + 0 = $2 AND ",
    begun!(),
    " RETURNING id, done, ahead_until IS NOT NULL AS is_ahead"
);
pub(super) const GIVE_BACK_SOME: &str = concat!(
    "WITH given AS (SELECT lease, array_agg(DISTINCT id) AS ids \
    FROM unnest($1::bigint[], $2::bigint[]) AS asked (lease, id) GROUP BY lease), \
    old AS (SELECT leases.id, leases.done, given.ids FROM leases JOIN given ON leases.id = given.lease \
    WHERE leases.id = ANY($1) AND leases.worker + 0 = $3 AND ",
    begun!(),
    " FOR UPDATE OF leases) \
    UPDATE leases SET done = old.done || array(SELECT id FROM unnest(old.ids) AS fresh (id) WHERE id <> ALL(old.done)) \
    FROM old WHERE leases.id = ANY($1) AND leases.id = old.id RETURNING leases.id, old.done AS done, \
    leases.ahead_until IS NOT NULL AS is_ahead"
);

/// Counters where nobody waits: what others have locked stays unlocked here, and nothing is taken of it.
const TRY_CLUSTER: &str = "SELECT FROM cluster WHERE cap IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED";
const TRY_QUEUES: &str =
    "SELECT id FROM queues WHERE max IS NOT NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED";

/// Idle lanes that the transaction has filled and locked: nothing but what it sent stands in them.
const FILLED_PLAIN: &str = concat!(
    "SELECT id AS lane, queue, priority, limits, heavy FROM lanes \
    WHERE id = ANY($1) AND state = 0 AND key IS NULL \
    AND ",
    serves!("$2"),
    " ORDER BY id"
);
const FILLED_KEYED: &str = concat!(
    "SELECT lanes.id AS lane, queue, priority, limits, heavy, \
    keys.id AS key, in_use, paused, pinned, sent, latest, rates \
    FROM lanes JOIN keys ON keys.id = lanes.key WHERE lanes.id = ANY($1) AND state = 0 \
    AND ",
    serves!("$2"),
    " \
    ORDER BY lanes.id FOR NO KEY UPDATE OF keys SKIP LOCKED"
);

/// Lanes held by keys of which something comes back.
const HELD_LANES: &str = "SELECT id AS lane, queue, key, priority, limits, heavy FROM lanes \
    WHERE key = ANY($1) AND state = 2 ORDER BY id";

pub(super) const STATEMENTS: [&str; 14] = [
    START,
    WORKER,
    CLUSTER,
    LOCK_CLUSTER,
    QUEUES,
    LOCK_QUEUES,
    LOCK_KEYS,
    GIVE_BACK,
    GIVE_BACK_SOME,
    HELD_LANES,
    TRY_CLUSTER,
    TRY_QUEUES,
    FILLED_PLAIN,
    FILLED_KEYED,
];

/// Where a turn looks for lanes, by what its process remembers.
pub(super) struct WhereTo {
    /// The lane after which the rotation goes on.
    pub(super) cursor: i64,
    /// Lanes that get nothing as long as nothing is in them, and their marks.
    pub(super) promised: (Vec<i64>, Vec<i64>),
}

/// What a turn asks for.
pub(super) struct Asked<'a> {
    pub(super) worker: WorkerId,
    pub(super) settles: &'a [Settle],
    /// What was claimed ahead and has started.
    pub(super) starts: &'a [Claimed],
    pub(super) want: Option<Want>,
    pub(super) where_to: WhereTo,
    pub(super) told: Option<i64>,
    /// The leases of which everything that is left is settled now.
    pub(super) whole: HashSet<i64>,
    /// What the transaction sends before it claims. `None`: it is a turn that a worker began.
    pub(super) sent: Option<&'a Filling>,
}

impl Asked<'_> {
    /// Whether the counters are waited for. A send does not wait.
    pub(super) fn waits(&self) -> bool {
        self.sent.is_none() && self.want.is_some_and(|want| want.with_locks)
    }

    pub(super) fn most_lanes(&self) -> i64 {
        self.want.map_or(0, |want| i64::from(want.slots.saturating_mul(2).clamp(LEAST_LANES, MOST_LANES)))
    }
}

/// What a send puts into its lanes.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// How many tasks go into each lane.
    pub(super) lanes: BTreeMap<i64, u32>,
    pub(super) has_keys: bool,
    /// Whether all of them may start at once, as far as time goes.
    pub(super) is_prompt: bool,
}

/// How a transaction began.
#[derive(Default)]
pub(super) struct Begun {
    /// The tasks it stored.
    pub(super) added: Vec<i64>,
    /// The lanes it filled that were idle. It has their rows, and nothing else stands in them.
    pub(super) idle: Vec<i64>,
}

/// The transaction of a worker's own turn begins. It waits so long for others' locks, or as long as its connection does.
pub(super) async fn begin(session: &Lease, patience: Option<Duration>) -> Result<Begun, StoreError> {
    match patience {
        None => session.run(BEGIN).await?,
        Some(patience) => {
            let begin = format!("{BEGIN}; SET LOCAL lock_timeout TO '{}ms'", patience.as_millis());
            session.run(&begin).await?;
        }
    }
    Ok(Begun::default())
}

/// What the first flight brought, as it came.
pub(super) struct Rows {
    pub(super) begun: Begun,
    /// Of the counters that nobody waits for, those that it has: the cluster's, queues'.
    pub(super) tried: (Vec<Row>, Vec<Row>),
    pub(super) known: Vec<Row>,
    pub(super) locked: Vec<Row>,
    /// What started, and leases given back: whole, and in part.
    pub(super) given: (Vec<Row>, Vec<Row>, Vec<Row>),
    pub(super) cluster: Vec<Row>,
    pub(super) queues: Vec<Row>,
    pub(super) held: Vec<Row>,
    pub(super) ready: ReadyLanes,
    /// Lanes filled by the transaction: without a key, and with one.
    pub(super) filled: (Vec<Row>, Vec<Row>),
}

/// Statements travel in this order, in one flight.
pub(super) async fn gather(
    session: &Lease,
    asked: &Asked<'_>,
    begin: impl Future<Output = Result<Begun, StoreError>>,
) -> Result<Rows, StoreError> {
    let back = Back::of(asked);
    let worker = asked.worker.0;
    let (tries, waits) = (asked.sent.is_some(), asked.waits());
    let lanes: Vec<i64> = asked.sent.map_or_else(Vec::new, |sent| sent.lanes.keys().copied().collect());
    let has_keys = asked.sent.is_some_and(|sent| sent.has_keys);
    let tried =
        async { flight!(session.query_if(tries, TRY_CLUSTER, []), session.query_if(tries, TRY_QUEUES, [])) };
    let waited = async {
        flight!(session.query_if(waits, LOCK_CLUSTER, []), session.query_if(waits, LOCK_QUEUES, []))
    };
    let given = async {
        flight!(
            session.query_if(!back.starts.is_empty(), START, [&back.starts, &worker, &asked.told]),
            session.query_if(!back.whole.is_empty(), GIVE_BACK, [&back.whole, &worker]),
            session.query_if(!back.ids.is_empty(), GIVE_BACK_SOME, [&back.leases, &back.ids, &worker]),
        )
    };
    let filled = async {
        flight!(
            session.query_if(tries, FILLED_PLAIN, [&lanes, &worker]),
            session.query_if(has_keys, FILLED_KEYED, [&lanes, &worker]),
        )
    };
    let (begun, tried, _, known, locked, given, cluster, queues, held, ready, filled) = flight!(
        begin,
        tried,
        waited,
        session.query(WORKER, [&worker, &asked.told]),
        session.query_if(!back.keys.is_empty(), LOCK_KEYS, [&back.keys]),
        given,
        session.query(CLUSTER, []),
        session.query(QUEUES, [&worker]),
        session.query_if(!back.keys.is_empty(), HELD_LANES, [&back.keys]),
        ready_lanes(session, asked, (&back.queues, &back.keys)),
        filled,
    )?;
    Ok(Rows { begun, tried, known, locked, given, cluster, queues, held, ready, filled })
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
