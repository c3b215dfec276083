-- Lanes whose key was swept away while they were made: nothing in them ever came up. Each gets its key again, under the same id. What it
-- was called is not known any more: it has a name of its own, and its tasks start under the limits they were sent with.
INSERT INTO keys (id, name, in_use, latest) OVERRIDING SYSTEM VALUE
    SELECT lost.key, 'recovered-' || lost.key, coalesce((SELECT sum(held.weight) FROM leases
        CROSS JOIN LATERAL unnest(leases.ids, leases.lanes, leases.weights) AS held (id, lane, weight)
        JOIN lanes ON lanes.id = held.lane
        WHERE lanes.key = lost.key AND held.id <> ALL(leases.done) AND leases.ahead_until IS NULL), 0), cluster.latest
    FROM (SELECT DISTINCT key FROM lanes WHERE key IS NOT NULL
        AND NOT EXISTS (SELECT FROM keys WHERE keys.id = lanes.key)) AS lost CROSS JOIN cluster
    ON CONFLICT DO NOTHING;
