//! What workers claim ahead, under soft caps: one task to a lease, which counts in no cap until the task starts.

use super::{
    connect::Lease,
    marks::Marks,
    rows,
    session::{begun, flight},
};
use crate::{
    plan::{Candidate, Scene},
    store::{Ahead, Claimed, Place, StoreError, WorkerId},
};

/// No claim ahead looks at more lanes than these.
const MOST_LANES: i64 = 16;

/// Of the lanes without a key, in the order in which they are served: those of queues of which the worker holds
/// something, and that are not beyond a cap that was lowered.
pub(super) const TAKE_AHEAD: &str = "WITH riding AS (\
    SELECT DISTINCT lanes.queue FROM leases CROSS JOIN LATERAL unnest(leases.lanes) AS held (lane) \
    JOIN lanes ON lanes.id = held.lane WHERE worker = $1 AND ahead_until IS NULL), \
    ready AS MATERIALIZED (SELECT lanes.id, marks.low, row_number() OVER (ORDER BY queues.priority, lanes.priority, \
    lanes.id) AS nr \
    FROM lanes JOIN queues ON queues.id = lanes.queue JOIN riding ON riding.queue = queues.id LEFT JOIN marks ON \
    marks.lane = lanes.id \
    WHERE state = 1 AND key IS NULL AND NOT paused AND (max IS NULL OR in_use <= max) ORDER BY nr LIMIT $5), \
    picked AS MATERIALIZED (SELECT first.spot FROM ready CROSS JOIN LATERAL (\
    SELECT ctid AS spot, place, id FROM tasks WHERE lane = ready.id AND place >= coalesce(ready.low, 0) \
    AND (good_until IS NULL OR good_until > $3) ORDER BY place, id LIMIT $2 FOR UPDATE SKIP LOCKED) AS first \
    ORDER BY ready.nr, first.place, first.id \
    LIMIT $2 - (SELECT count(*) FROM leases WHERE worker = $1 AND ahead_until = $4)), \
    taken AS (DELETE FROM tasks WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) RETURNING id, lane, place, attempt, \
    weight, good_until, record), \
    made AS (INSERT INTO leases (worker, since, ids, lanes, attempts, weights, goods, records, ahead_until) \
    SELECT $1, $3, ARRAY[taken.id], ARRAY[lane], ARRAY[attempt + 1], ARRAY[weight], ARRAY[coalesce(good_until, 0)], \
    ARRAY[record], $4 FROM taken JOIN ready ON ready.id = taken.lane ORDER BY nr, place, taken.id RETURNING id, ids, \
    lanes, attempts, weights, goods, records) \
    SELECT made.id, ids, made.lanes, attempts, weights, goods, records, lanes.queue FROM made JOIN lanes ON lanes.id = \
    made.lanes[1] ORDER BY made.id";

/// Of these lanes, whose keys are full and locked, so that nobody else takes anything from them: where all that runs of
/// the key runs in the worker, and nobody else has anything of it at hand, one for each that runs.
pub(super) const TAKE_AHEAD_OF_KEYS: &str = "WITH riding AS (\
    SELECT lanes.key, lanes.queue, sum(held.weight) AS weight, count(*) AS count FROM leases \
    CROSS JOIN LATERAL unnest(ids, leases.lanes, weights) AS held (id, lane, weight) JOIN lanes ON lanes.id = held.lane \
    WHERE worker = $1 AND ahead_until IS NULL AND held.id <> ALL(done) AND key IS NOT NULL GROUP BY lanes.key, lanes.queue), \
    waiting AS (SELECT lanes.key, count(*) FILTER (WHERE worker = $1) AS mine, count(*) FILTER (WHERE worker <> $1) AS others \
    FROM leases JOIN lanes ON lanes.id = leases.lanes[1] WHERE ahead_until IS NOT NULL GROUP BY lanes.key), \
    ready AS MATERIALIZED (SELECT told.lane, told.low, riding.count - coalesce(waiting.mine, 0) AS room \
    FROM unnest($5::bigint[], $6::int[], $7::bigint[]) AS told (lane, in_use, low) JOIN lanes ON lanes.id = told.lane \
    JOIN queues ON queues.id = lanes.queue JOIN riding ON riding.key = lanes.key AND riding.queue = lanes.queue \
    LEFT JOIN waiting ON waiting.key = lanes.key \
    WHERE NOT queues.paused AND NOT heavy AND riding.weight = told.in_use AND coalesce(waiting.others, 0) = 0 \
    AND NOT EXISTS (SELECT FROM lanes AS rivals WHERE rivals.key = lanes.key AND rivals.id <> lanes.id AND rivals.state <> 0)), \
    picked AS MATERIALIZED (SELECT first.spot FROM ready CROSS JOIN LATERAL (\
    SELECT ctid AS spot FROM tasks WHERE lane = ready.lane AND place >= ready.low \
    AND (good_until IS NULL OR good_until > $3) ORDER BY place, id LIMIT greatest(room, 0)) AS first LIMIT $2), \
    taken AS (DELETE FROM tasks WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) RETURNING id, lane, place, attempt, \
    weight, good_until, record), \
    made AS (INSERT INTO leases (worker, since, ids, lanes, attempts, weights, goods, records, ahead_until) \
    SELECT $1, $3, ARRAY[id], ARRAY[lane], ARRAY[attempt + 1], ARRAY[weight], ARRAY[coalesce(good_until, 0)], \
    ARRAY[record], $4 FROM (SELECT * FROM taken ORDER BY lane, place, id) AS taken RETURNING id, ids, lanes, attempts, \
    weights, goods, records) \
    SELECT made.id, ids, made.lanes, attempts, weights, goods, records, lanes.queue, lanes.key FROM made JOIN lanes ON \
    lanes.id = made.lanes[1] ORDER BY made.id";

/// Those that are still the worker's, and whether they counted nowhere until now.
pub(super) const START: &str = concat!(
    "WITH known AS (\
    SELECT id, ahead_until FROM leases WHERE id = ANY($1) AND worker + 0 = $2 AND ",
    begun!(),
    " ORDER BY id FOR UPDATE), \
    started AS (UPDATE leases SET ahead_until = NULL, since = now_ns($3) FROM known \
    WHERE leases.id = ANY($1) AND leases.id = known.id AND known.ahead_until IS NOT NULL) \
    SELECT id, ahead_until IS NOT NULL AS is_new FROM known"
);

/// What started and takes nobody's place: as if it had not, and in time for nobody. Upkeep takes it back to its line.
pub(super) const REFUSE: &str = "UPDATE leases SET ahead_until = $2 WHERE id = ANY($1)";

/// What did not start in time, and the lanes it came from; it goes back to the front of their lines.
pub(super) const LATE: &str = "SELECT id, lanes[1] AS lane, ids[1] AS task FROM leases \
    WHERE ahead_until <= (SELECT now_ns($1)) ORDER BY ahead_until, id LIMIT $2 FOR UPDATE SKIP LOCKED";
pub(super) const GIVE_UP: &str = "WITH late AS (DELETE FROM leases WHERE id = ANY($1) RETURNING id, ids, lanes, \
    attempts, weights, goods, records) \
    INSERT INTO tasks (id, lane, place, attempt, weight, good_until, record) \
    SELECT ids[1], lanes[1], greatest(ids[1], low), attempts[1] - 1, weights[1], nullif(goods[1], 0), records[1] \
    FROM late LEFT JOIN marks ON marks.lane = late.lanes[1]";

/// What a turn may claim ahead.
pub(super) struct Room {
    most: i64,
    until: i64,
    /// Whether tasks without a key may be.
    is_plain: bool,
    /// Lanes with a key that may be, how much of the key is in use, and the lanes' marks.
    lanes: Vec<i64>,
    in_use: Vec<i32>,
    lows: Vec<i64>,
}

impl Room {
    /// Whoever has a slot free needs nothing ahead, but for keys that are full.
    pub(super) fn of(ahead: Option<Ahead>, scene: &Scene, marks: &Marks) -> Option<Self> {
        let ahead = ahead.filter(|ahead| ahead.most > 0)?;
        let full: Vec<&Candidate> = scene.full_lanes().collect();
        let lanes: Vec<i64> = full.iter().map(|lane| lane.id).collect();
        let in_use = |lane: &&Candidate| lane.key.map_or(0, |key| scene.keys[key].in_use as i32);
        Some(Room {
            most: i64::from(ahead.most),
            until: rows::stored(scene.now).saturating_add(super::columns::nanos(ahead.lease)),
            is_plain: scene.budget == 0,
            in_use: full.iter().map(in_use).collect(),
            lows: marks.of(&lanes),
            lanes,
        })
    }
}

/// Claims ahead, within a turn's transaction.
pub(super) async fn take(
    session: &Lease,
    worker: WorkerId,
    room: Option<Room>,
    now: i64,
) -> Result<Vec<Claimed>, StoreError> {
    let Some(Room { most, until, is_plain, lanes, in_use, lows }) = room else { return Ok(Vec::new()) };
    let (keyed, plain) = flight!(
        session.query_if(
            !lanes.is_empty(),
            TAKE_AHEAD_OF_KEYS,
            [&worker.0, &most, &now, &until, &lanes, &in_use, &lows],
        ),
        session.query_if(is_plain, TAKE_AHEAD, [&worker.0, &most, &now, &until, &MOST_LANES]),
    )?;
    let mut claimed = Vec::new();
    for row in keyed.iter().chain(&plain) {
        let (queue, key) = (row.get("queue"), row.try_get("key").ok());
        let placed = |told: Claimed| Claimed { place: Place { queue, key, ..told.place }, ..told };
        claimed.extend(rows::claimed(row).map(placed));
    }
    Ok(claimed)
}
