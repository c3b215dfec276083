//! The lanes that are ready, as a turn looks for them; and, while some are [promised](super::promised), those that are not.

use tokio_postgres::Row;

use super::{
    connect::Lease,
    gather::{Asked, WhereTo, is_served, serves},
    session::{Params, flight},
};
use crate::store::StoreError;

/// How many without a key are looked at, and how many with a key the server names whether or not others have them.
pub(super) const MOST_PLAIN: usize = 16;
pub(super) const A_FEW: usize = 4;

/// Told lanes in which nothing stands that may be claimed, from their marks on.
macro_rules! promised {
    ($lanes:literal, $lows:literal, $told:literal) => {
        concat!(
            "promised AS MATERIALIZED (SELECT told.lane FROM unnest(",
            $lanes,
            "::bigint[], ",
            $lows,
            "::bigint[]) AS told (lane, low) WHERE NOT EXISTS (SELECT FROM tasks WHERE tasks.lane = told.lane \
             AND place >= told.low AND (good_until IS NULL OR good_until > now_ns(",
            $told,
            "))))"
        )
    };
}

/// Ready lanes with a key: those of the best priority after the cursor, then those up to it, then the others; each key
/// locked, unless somebody else has it. In three parts, so that each is a piece of the index, and said by pairs, so
/// that no other index looks as good: one over all lanes steps over those that may not run. Those that this turn has
/// locked before are not looked up again.
macro_rules! keyed_lanes {
    ([$($start:tt)*], $but:literal) => {
        concat!(
            "WITH ",
            $($start)*
            "ready AS MATERIALIZED (\
            SELECT lanes.* FROM queues CROSS JOIN LATERAL (\
            SELECT priority AS best FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL",
            $but,
            " ORDER BY priority LIMIT 1) AS first CROSS JOIN LATERAL (SELECT * FROM (\
            (SELECT id, queue, key, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 \
            AND key IS NOT NULL AND (priority, id) > (best, $1) AND priority <= best",
            $but,
            " ORDER BY priority, id LIMIT $2) UNION ALL \
            (SELECT id, queue, key, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 \
            AND key IS NOT NULL AND (priority, id) <= (best, $1)",
            $but,
            " ORDER BY priority, id LIMIT $2) UNION ALL \
            (SELECT id, queue, key, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 \
            AND key IS NOT NULL AND priority > best",
            $but,
            " ORDER BY priority, id LIMIT $2)) AS parts LIMIT $2) AS lanes \
            WHERE NOT queues.paused AND (queues.max IS NULL OR queues.in_use < queues.max OR queues.id = ANY($3)) \
            AND ",
            serves!("$4"),
            ") \
            SELECT * FROM (SELECT ready.id AS lane, ready.queue, ready.priority, ready.limits, ready.heavy, \
            keys.id AS key, in_use, paused, pinned, sent, latest, rates \
            FROM ready JOIN keys ON keys.id = ready.key WHERE ready.key <> ALL($5) FOR NO KEY UPDATE OF keys SKIP LOCKED) \
            AS free UNION ALL \
            SELECT id, queue, priority, limits, heavy, key, 0, true, NULL, '', false, '' FROM ready WHERE key = ANY($5)"
        )
    };
}
pub(super) const KEYED_LANES: &str = keyed_lanes!([], "");
pub(super) const KEYED_BUT: &str =
    keyed_lanes!([promised!("$6", "$7", "$8"), ", ",], " AND id NOT IN (SELECT lane FROM promised)");

macro_rules! plain_lanes {
    ([$($start:tt)*], $but:literal) => {
        concat!(
            $($start)*
            "SELECT lanes.id AS lane, queue, lanes.priority, limits, heavy FROM queues CROSS JOIN LATERAL (\
            SELECT id, queue, priority, limits, heavy FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NULL",
            $but,
            " ORDER BY priority, id LIMIT 16) AS lanes WHERE ",
            serves!("$1")
        )
    };
}
pub(super) const PLAIN_LANES: &str = plain_lanes!([], "");
const PLAIN_BUT: &str =
    plain_lanes!(["WITH ", promised!("$2", "$3", "$4"), " ",], " AND id NOT IN (SELECT lane FROM promised)");

/// A few of the lanes with a key, locked or not.
macro_rules! any_keyed {
    ([$($start:tt)*], $but:literal) => {
        concat!(
            $($start)*
            "SELECT lanes.id AS lane FROM queues CROSS JOIN LATERAL (\
            SELECT id, queue FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL",
            $but,
            " LIMIT 4) AS lanes WHERE NOT paused AND (max IS NULL OR in_use < max) AND ",
            serves!("$1"),
            " LIMIT 4"
        )
    };
}
pub(super) const ANY_KEYED: &str = any_keyed!([], "");
const ANY_BUT: &str =
    any_keyed!(["WITH ", promised!("$2", "$3", "$4"), " ",], " AND id NOT IN (SELECT lane FROM promised)");

pub(super) const STATEMENTS: [&str; 6] = [KEYED_LANES, PLAIN_LANES, ANY_KEYED, KEYED_BUT, PLAIN_BUT, ANY_BUT];

/// What a turn finds.
#[derive(Default)]
pub(super) struct ReadyLanes {
    pub(super) keyed: Vec<Row>,
    pub(super) plain: Vec<Row>,
    /// Of the keyed ones, whoever has them.
    pub(super) any: Vec<Row>,
}

/// Looks for them, if the turn wants tasks: `back` are the queues and keys to which it gives slots back.
pub(super) async fn ready_lanes(
    session: &Lease,
    asked: &Asked<'_>,
    (queues, keys): (&Vec<i64>, &Vec<i64>),
) -> Result<ReadyLanes, StoreError> {
    if asked.want.is_none() {
        return Ok(ReadyLanes::default());
    }
    let WhereTo { cursor, promised: (lanes, lows) } = &asked.where_to;
    let (most, worker, told) = (asked.most_lanes(), asked.worker.0, asked.told);
    let (keyed, plain, any) = if lanes.is_empty() {
        flight!(
            session.query(KEYED_LANES, [cursor, &most, queues, &worker, keys]),
            session.query(PLAIN_LANES, [&worker]),
            session.query(ANY_KEYED, [&worker]),
        )?
    } else {
        let told_keyed: Params<'_, 8> = [cursor, &most, queues, &worker, keys, lanes, lows, &told];
        let told: Params<'_, 4> = [&worker, lanes, lows, &told];
        flight!(
            session.query(KEYED_BUT, told_keyed),
            session.query(PLAIN_BUT, told),
            session.query(ANY_BUT, told),
        )?
    };
    Ok(ReadyLanes { keyed, plain, any })
}
