//! What workers claim ahead, under soft caps: one task to a lease, which counts in no cap until the task starts.

use super::{connect::Lease, rows};
use crate::store::{Ahead, Claimed, Place, StoreError, WorkerId};

/// No claim ahead looks at more lanes than these.
const MOST_LANES: i64 = 16;

/// Of the lanes without a key, in the order in which they are served: those of queues of which the worker holds something.
pub(super) const TAKE_AHEAD: &str = "WITH riding AS (\
    SELECT DISTINCT lanes.queue FROM leases CROSS JOIN LATERAL unnest(leases.lanes) AS held (lane) \
    JOIN lanes ON lanes.id = held.lane WHERE worker = $1 AND ahead_until IS NULL), \
    ready AS MATERIALIZED (SELECT lanes.id, marks.low, row_number() OVER (ORDER BY queues.priority, lanes.priority, lanes.id) AS nr \
    FROM lanes JOIN queues ON queues.id = lanes.queue JOIN riding ON riding.queue = queues.id LEFT JOIN marks ON marks.lane = lanes.id \
    WHERE state = 1 AND key IS NULL AND NOT paused ORDER BY nr LIMIT $5), \
    picked AS MATERIALIZED (SELECT first.spot FROM ready CROSS JOIN LATERAL (\
    SELECT ctid AS spot, place, id FROM tasks WHERE lane = ready.id AND place >= coalesce(ready.low, 0) \
    AND (good_until IS NULL OR good_until > $3) ORDER BY place, id LIMIT $2 FOR UPDATE SKIP LOCKED) AS first \
    ORDER BY ready.nr, first.place, first.id LIMIT $2), \
    taken AS (DELETE FROM tasks WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) RETURNING tasks.*), \
    made AS (INSERT INTO leases (worker, since, ids, lanes, attempts, weights, goods, records, ahead_until) \
    SELECT $1, $3, ARRAY[taken.id], ARRAY[lane], ARRAY[attempt + 1], ARRAY[weight], ARRAY[coalesce(good_until, 0)], \
    ARRAY[record], $4 FROM taken JOIN ready ON ready.id = taken.lane ORDER BY nr, place, taken.id RETURNING *) \
    SELECT made.*, lanes.queue FROM made JOIN lanes ON lanes.id = made.lanes[1] ORDER BY made.id";

/// Those that are still the worker's, and whether they counted nowhere until now.
pub(super) const START: &str = "WITH known AS (\
    SELECT id, ahead_until FROM leases WHERE id = ANY($1) AND worker = $2 ORDER BY id FOR UPDATE), \
    started AS (UPDATE leases SET ahead_until = NULL, since = now_ns($3) FROM known \
    WHERE leases.id = known.id AND known.ahead_until IS NOT NULL) \
    SELECT id, ahead_until IS NOT NULL AS is_new FROM known";

/// What did not start in time, and the lanes it came from; it goes back to the front of their lines.
pub(super) const LATE: &str = "SELECT id, lanes[1] AS lane FROM leases \
    WHERE ahead_until <= now_ns($1) ORDER BY ahead_until, id LIMIT $2 FOR UPDATE SKIP LOCKED";
pub(super) const GIVE_UP: &str = "WITH late AS (DELETE FROM leases WHERE id = ANY($1) RETURNING *) \
    INSERT INTO tasks (id, lane, place, attempt, weight, good_until, record) \
    SELECT ids[1], lanes[1], greatest(ids[1], low), attempts[1] - 1, weights[1], nullif(goods[1], 0), records[1] \
    FROM late LEFT JOIN marks ON marks.lane = late.lanes[1]";

/// Claims ahead, within a turn's transaction.
pub(super) async fn take(
    session: &Lease,
    worker: WorkerId,
    ahead: Option<Ahead>,
    now: i64,
) -> Result<Vec<Claimed>, StoreError> {
    let Some(ahead) = ahead else { return Ok(Vec::new()) };
    let until = now.saturating_add(super::send::nanos(ahead.lease));
    let most = i64::from(ahead.most);
    let taken = session.query(TAKE_AHEAD, [&worker.0, &most, &now, &until, &MOST_LANES]).await?;
    let mut claimed = Vec::new();
    for row in &taken {
        let queue = row.get("queue");
        let placed = |told: Claimed| Claimed { place: Place { queue, ..told.place }, ..told };
        claimed.extend(rows::claimed(row).map(placed));
    }
    Ok(claimed)
}
