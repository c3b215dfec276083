//! A turn that gives back as much as it takes: no count changes, so it ends with the flight that takes.
//!
//! Owns what is foreseen of such a turn, and the statement that sets the counts right where less was there than was foreseen.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    heavy::{picked, weighs},
    write::Changes,
};
use crate::{
    ledger::Ledger,
    plan::{Grant, LaneState, Scene},
    store::{Claimed, MOST_BYTES},
    task::{MAX_BODY, MAX_NAME},
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

/// [`MOST_BYTES`], as statements have it.
macro_rules! most_bytes {
    () => {
        67108864
    };
}
const _: () = assert!(MOST_BYTES == most_bytes!(), "one bound");

/// What [`super::turn`] takes, for both ways of taking it. From lanes whose key is locked nobody else takes; from the
/// others everybody does, so there each row is locked. Rows are deleted by where they are: nobody moves a task that
/// stands in line.
///
/// What weighs more than one slot may have come since the plan was made, and what stood before it may be gone. So
/// this statement asks by itself which lanes are heavy ([`super::heavy`]), and takes nothing of these; where the plan
/// knows of some it takes as many as fit. A task that is granted alone is looked at instead of its lane: 170 lanes with
/// one each cost the statement 15 % more.
///
/// A lease is one row, and has a maximum. Where what is granted might come to more ([`Largest`]) it is `bounded`, in
/// the order of the grants.
macro_rules! taken {
    (plain) => {
        taken!("", "", "", "ARRAY(SELECT spot FROM picked)")
    };
    (bounded) => {
        taken!(bounded, "")
    };
    (weighed) => {
        taken!(bounded, picked!())
    };
    (bounded, $weighed:expr) => {
        taken!(
            $weighed,
            ", octet_length(record) AS size, place, id",
            ", first.size, grants.nr, first.place, first.id",
            concat!(
                "coalesce((SELECT array_agg(spot) FROM picked HAVING sum(size) < ",
                most_bytes!(),
                "), ARRAY(SELECT spot FROM (\
                 SELECT spot, sum(size) OVER (ORDER BY nr, place, id ROWS UNBOUNDED PRECEDING) - size AS before \
                 FROM picked) AS loaded WHERE before < ",
                most_bytes!(),
                "))"
            )
        )
    };
    ($weighed:expr, $size:literal, $sized:literal, $($spots:tt)*) => {
        concat!(
            "picked AS MATERIALIZED (SELECT first.spot", $sized, " FROM grants CROSS JOIN LATERAL (\
         SELECT ctid AS spot, weight", $size, " FROM tasks WHERE lane = grants.lane AND place >= grants.low \
         AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT grants.count) AS first \
         WHERE alone AND NOT weighs AND (count > 1 OR weight = 1) ", $weighed, "\
         UNION ALL SELECT first.spot", $sized, " FROM grants CROSS JOIN LATERAL (\
         SELECT ctid AS spot", $size, " FROM tasks WHERE lane = grants.lane AND place >= grants.low \
         AND (good_until IS NULL OR good_until > $4) ORDER BY place, id LIMIT grants.count FOR UPDATE SKIP LOCKED) AS \
         first WHERE NOT alone), \
         taken AS (DELETE FROM tasks WHERE ctid = ANY(", $($spots)*, ") \
         RETURNING id, lane, place, attempt, weight, good_until, record) "
        )
    };
}
/// What was taken goes into one lease of the worker $5, from now on.
macro_rules! leased {
    ($now:literal) => {
        concat!(
            " INSERT INTO leases (worker, since, ids, lanes, attempts, weights, goods, records) \
         SELECT $5, ", $now, ", array_agg(id), array_agg(lane), array_agg(attempt + 1), array_agg(weight), \
         array_agg(coalesce(good_until, 0)), \
         array_agg(record) FROM (SELECT * FROM taken ORDER BY lane, place, id) AS taken HAVING count(*) > 0 \
         RETURNING id, since, ids, lanes, attempts, weights, goods, records"
        )
    };
}
pub(super) use leased;

/// The grants, as they are told: with one more column, or without. Of `some` it is asked whether their lane is heavy.
macro_rules! granted {
    ($some:literal, $array:literal, $column:literal) => {
        concat!(
            "WITH grants AS (SELECT *, alone AND ",
            $some,
            " AND ",
            weighs!(),
            " AS weighs FROM unnest($1::bigint[], $2::int[], $3::bool[], $6::bigint[]",
            $array,
            ") WITH ORDINALITY AS granted (lane, count, alone, low, ",
            $column,
            "nr)), "
        )
    };
}
pub(super) const TAKE: &str = concat!(granted!("count > 1", "", ""), taken!(plain), leased!("$4"));
pub(super) const TAKE_BOUNDED: &str = concat!(granted!("count > 1", "", ""), taken!(bounded), leased!("$4"));
/// The same where lanes are known to be heavy: of these as many as fit, from the head on.
pub(super) const TAKE_WEIGHED: &str =
    concat!(granted!("count > 0", ", $7::bigint[]", "room, "), taken!(weighed), leased!("$4"));

/// The same; what is missing was counted and is not there, so it comes back: of the cluster, then of the queue $8, then
/// of keys that are locked, whose lanes may run.
macro_rules! take_balanced {
    ($how:tt) => { concat!(
    granted!("count > 1", ", $7::bigint[]", "key, "),
    taken!($how),
    ", fewer AS MATERIALIZED (SELECT key, missing FROM (SELECT key, \
     count - (SELECT count(*) FROM taken WHERE taken.lane = grants.lane)::int AS missing FROM grants) AS counted WHERE \
     missing > 0), \
     of_cluster AS (UPDATE cluster SET in_use = greatest(0, in_use - (SELECT sum(missing) FROM fewer)::int) \
     WHERE cap IS NOT NULL AND EXISTS (SELECT FROM fewer) RETURNING in_use), \
     of_queue AS (UPDATE queues SET in_use = greatest(0, in_use - (SELECT sum(missing) FROM fewer)::int) \
     WHERE id = $8 AND max IS NOT NULL AND EXISTS (SELECT FROM fewer) AND (SELECT count(*) FROM of_cluster) >= 0), \
     of_keys AS (UPDATE keys SET in_use = greatest(0, in_use - missing) FROM fewer WHERE keys.id = fewer.key), \
     held AS (SELECT lanes.id FROM lanes JOIN fewer ON lanes.key = fewer.key WHERE state = 2 \
     ORDER BY lanes.id FOR NO KEY UPDATE OF lanes), \
     of_lanes AS (UPDATE lanes SET state = 1 FROM held WHERE lanes.id = held.id AND state = 2)",
    leased!("$4")
) };
}
pub(super) const TAKE_BALANCED: &str = take_balanced!(plain);
pub(super) const TAKE_BALANCED_BOUNDED: &str = take_balanced!(bounded);

pub(super) const STATEMENTS: [&str; 5] =
    [TAKE, TAKE_BOUNDED, TAKE_WEIGHED, TAKE_BALANCED, TAKE_BALANCED_BOUNDED];

/// So many tasks make less than a value may be, whatever they carry: a gigabyte.
pub(super) const SURE: u32 = 60;
const _: () = assert!(SURE as usize * (MAX_BODY + 4 * MAX_NAME) < 1 << 30, "it is sure");

/// The largest record that was claimed lately, as far as this process knows: by this it is guessed whether a few tasks
/// might be more than a claim takes. Where there are more than a few nothing is guessed: 500 with their sizes cost the
/// statement 2 % more, one alone 11 %.
#[derive(Default)]
pub(super) struct Largest {
    lately: AtomicUsize,
    /// How many tasks were seen.
    seen: AtomicUsize,
}

impl Largest {
    /// Whoever has seen fewer than these is careful.
    const FEW: usize = 16;

    /// Forgets a little with each claim.
    pub(super) fn see(&self, claimed: &[Claimed]) {
        let Some(largest) = claimed.iter().map(|task| task.record.len()).max() else { return };
        let lately = self.lately.load(Ordering::Relaxed);
        self.lately.store(largest.max(lately - lately / 16), Ordering::Relaxed);
        self.seen.fetch_add(claimed.len(), Ordering::Relaxed);
    }

    /// Whether so many need no look at their sizes.
    pub(super) fn fits(&self, count: u32) -> bool {
        let is_known = self.seen.load(Ordering::Relaxed) >= Self::FEW;
        let largest = if is_known { self.lately.load(Ordering::Relaxed) } else { MAX_BODY };
        count <= SURE && count as usize * largest < MOST_BYTES
    }
}

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

#[cfg(test)]
mod tests {
    use super::{Largest, SURE};
    use crate::{
        store::{Claimed, Place},
        task::{MAX_BODY, TaskId},
    };

    fn claimed(bytes: usize) -> Claimed {
        let place = Place { lane: 1, queue: 1, key: None };
        let (lease, attempt, weight, good_until) = (1, 1, 1, None);
        Claimed { id: TaskId(1), lease, attempt, weight, good_until, record: vec![0; bytes].into(), place }
    }

    // Seen to fail: with `seen` left out of `fits`, it guessed from one task; with a start at `MAX_BODY`, to be
    // forgotten a little with each claim, it looked at sizes for 43 claims of 60; with nothing kept of those before, at
    // none behind the large one.
    #[test]
    fn t4_sizes_are_looked_at_until_some_tasks_were_seen_and_after_a_large_one() {
        let largest = Largest::default();
        assert!(!largest.fits(SURE), "nothing is known");
        largest.see(&[claimed(100)]);
        assert!(!largest.fits(SURE), "one is not enough");
        largest.see(&vec![claimed(100); Largest::FEW - 1]);
        assert!(largest.fits(SURE));
        assert!(!largest.fits(SURE + 1), "nothing is guessed of more");
        largest.see(&[claimed(MAX_BODY)]);
        largest.see(&vec![claimed(100); Largest::FEW]);
        assert!(!largest.fits(SURE), "a large one is not forgotten at once");
        (0..64).for_each(|_| largest.see(&[claimed(100)]));
        assert!(largest.fits(SURE));
    }
}
