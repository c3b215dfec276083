//! A turn that gives back as much as it takes: no count changes, so it ends with the flight that takes.
//!
//! Owns what is foreseen of such a turn, and the statement that sets the counts right where less was there than was foreseen.

use std::collections::HashSet;

use super::write::Changes;
use crate::{
    ledger::Ledger,
    plan::{Grant, LaneState, Scene},
};

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing is counted: with the flight that takes.
    Bare,
    /// Nothing changes if all that is granted is there: with the flight that takes, which sees to it if it is not.
    Balanced,
    /// With a flight of its own, in which what changed is written.
    Written,
}

/// What [`super::turn`] takes, for both ways of taking it. From lanes whose key is locked nobody else takes; from the others everybody
/// does, so there each row is locked. Rows are deleted by where they are: nobody moves a task that stands in line.
macro_rules! taken {
    () => {
        "picked AS MATERIALIZED (SELECT first.spot FROM grants CROSS JOIN LATERAL (\
         SELECT ctid AS spot FROM tasks WHERE lane = grants.lane AND place >= grants.low \
         AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT grants.count) AS first WHERE alone \
         UNION ALL SELECT first.spot FROM grants CROSS JOIN LATERAL (\
         SELECT ctid AS spot FROM tasks WHERE lane = grants.lane AND place >= grants.low \
         AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT grants.count FOR UPDATE SKIP LOCKED) AS first WHERE NOT alone), \
         taken AS (DELETE FROM tasks WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) \
         RETURNING id, lane, place, attempt, weight, good_until, record) "
    };
}
/// What was taken goes into one lease of the worker $5, from now on.
macro_rules! leased {
    ($now:literal) => {
        concat!(
            " INSERT INTO leases (worker, since, ids, lanes, attempts, weights, goods, records) \
         SELECT $5, ", $now, ", array_agg(id), array_agg(lane), array_agg(attempt + 1), array_agg(weight), array_agg(coalesce(good_until, 0)), \
         array_agg(record) FROM (SELECT * FROM taken ORDER BY lane, place, id) AS taken HAVING count(*) > 0 \
         RETURNING id, since, ids, lanes, attempts, weights, goods, records"
        )
    };
}
pub(super) use leased;

pub(super) const TAKE: &str = concat!(
    "WITH grants AS (\
     SELECT * FROM unnest($1::bigint[], $2::int[], $3::bool[], $6::bigint[]) AS granted (lane, count, alone, low)), ",
    taken!(),
    leased!("$4")
);

/// The same; what is missing was counted and is not there, so it comes back: of the cluster, then of the queue $8, then of keys that are
/// locked, whose lanes may run.
pub(super) const TAKE_BALANCED: &str = concat!(
    "WITH grants AS (SELECT * FROM unnest($1::bigint[], $2::int[], $3::bool[], $6::bigint[], $7::bigint[]) \
     AS granted (lane, count, alone, low, key)), ",
    taken!(),
    ", fewer AS MATERIALIZED (SELECT key, missing FROM (SELECT key, \
     count - (SELECT count(*) FROM taken WHERE taken.lane = grants.lane)::int AS missing FROM grants) AS counted WHERE missing > 0), \
     of_cluster AS (UPDATE cluster SET in_use = greatest(0, in_use - (SELECT sum(missing) FROM fewer)::int) \
     WHERE cap IS NOT NULL AND EXISTS (SELECT FROM fewer) RETURNING in_use), \
     of_queue AS (UPDATE queues SET in_use = greatest(0, in_use - (SELECT sum(missing) FROM fewer)::int) \
     WHERE id = $8 AND max IS NOT NULL AND EXISTS (SELECT FROM fewer) AND (SELECT count(*) FROM of_cluster) >= 0), \
     of_keys AS (UPDATE keys SET in_use = greatest(0, in_use - missing) FROM fewer WHERE keys.id = fewer.key), \
     held AS (SELECT lanes.id FROM lanes JOIN fewer ON lanes.key = fewer.key WHERE state = 2 \
     ORDER BY lanes.id FOR NO KEY UPDATE OF lanes), \
     of_lanes AS (UPDATE lanes SET state = 1 FROM held WHERE lanes.id = held.id AND state = 2)",
    leased!("$4")
);

pub(super) const STATEMENTS: [&str; 2] = [TAKE, TAKE_BALANCED];

/// Whether nothing changes if these grants are taken in full, each task of one slot.
pub(super) fn holds(
    scene: &Scene,
    grants: &[Grant],
    (were, counted): (&[Option<LaneState>], &[(u32, Ledger)]),
    heavy: &HashSet<i64>,
) -> bool {
    let Some(first) = grants.first() else { return false };
    let queue = |grant: &Grant| scene.lanes[grant.lane].queue;
    let granted: u32 = grants.iter().map(|grant| grant.count).sum();
    if scene.cluster.cap.is_some() && granted != scene.cluster.freed
        || grants.iter().any(|grant| queue(grant) != queue(first))
        || grants.iter().any(|grant| heavy.contains(&scene.lanes[grant.lane].id))
    {
        return false;
    }
    let mut after = scene.clone();
    for grant in grants {
        after.book(*grant, &vec![1; grant.count as usize]);
    }
    Changes::of(&after, (were, counted), &HashSet::new(), &[]).is_empty()
}
