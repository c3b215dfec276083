-- Tasks and all that is counted about them. Moments are nanoseconds since the Unix epoch, by this server's clock.

CREATE SEQUENCE task_ids;

-- The time now, unless somebody says what time it is, as tests do.
CREATE FUNCTION now_ns(told bigint) RETURNS bigint LANGUAGE sql VOLATILE
    RETURN coalesce(told, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000);

-- One row: the cap over everything. Nothing is counted while there is no cap.
CREATE TABLE cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    cap integer CHECK (cap > 0),
    in_use integer NOT NULL DEFAULT 0
);
INSERT INTO cluster DEFAULT VALUES;

-- Nothing is counted for a queue without a max.
CREATE TABLE queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    priority integer NOT NULL DEFAULT 100,
    max integer CHECK (max > 0),
    in_use integer NOT NULL DEFAULT 0,
    paused boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE keys (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    in_use integer NOT NULL DEFAULT 0,
    paused boolean NOT NULL DEFAULT false,
    -- Limits that overrule all that were sent, as text.
    pinned text,
    -- The newest limits sent, and whether these govern all that wait.
    sent text NOT NULL DEFAULT '',
    latest boolean NOT NULL DEFAULT false,
    -- What is spent, under each rate.
    rates text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- Tasks that differ in nothing but their order: the unit of service.
CREATE TABLE lanes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue bigint NOT NULL,
    key bigint,
    priority smallint NOT NULL,
    limits text NOT NULL,
    -- 0 idle: nothing in line. 1 ready: to be looked at. 2 held by its key. 3 held by a rate, until wake_at.
    state smallint NOT NULL DEFAULT 0,
    wake_at bigint,
    -- Whether a task in it may take more than one slot: then its head may have to wait for several.
    heavy boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX lanes_are_one ON lanes (queue, coalesce(key, 0), priority, limits);
CREATE INDEX lanes_ready ON lanes (queue, priority, id) WHERE state = 1 AND key IS NOT NULL;
CREATE INDEX lanes_ready_without_key ON lanes (queue, priority, id) WHERE state = 1 AND key IS NULL;
CREATE INDEX lanes_waking ON lanes (wake_at) WHERE state = 3;
CREATE INDEX lanes_of_key ON lanes (key) WHERE key IS NOT NULL;

-- Tasks that nobody holds. Those in line have a place, delayed ones have none.
CREATE TABLE tasks (
    id bigint PRIMARY KEY,
    lane bigint NOT NULL,
    place bigint,
    attempt integer NOT NULL,
    weight integer NOT NULL,
    due_at bigint,
    good_until bigint,
    record bytea NOT NULL
);
CREATE INDEX tasks_in_line ON tasks (lane, place);
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_good ON tasks (good_until) WHERE good_until IS NOT NULL;

CREATE TABLE workers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    slots integer NOT NULL,
    queues bigint[],
    lease bigint NOT NULL,
    lease_until bigint NOT NULL,
    since bigint NOT NULL
) WITH (fillfactor = 50);

-- What one claim took: a row for all of it, which is most of the speed. Its id is the fencing token of its tasks.
CREATE TABLE leases (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker bigint NOT NULL,
    since bigint NOT NULL,
    ids bigint[] NOT NULL,
    lanes bigint[] NOT NULL,
    attempts integer[] NOT NULL,
    weights integer[] NOT NULL,
    goods bigint[] NOT NULL,
    records bytea[] NOT NULL,
    done bigint[] NOT NULL DEFAULT '{}'
);
CREATE INDEX leases_of_worker ON leases (worker);

CREATE TABLE dead (
    id bigint PRIMARY KEY,
    queue text NOT NULL,
    key text,
    priority smallint NOT NULL,
    limits text NOT NULL,
    attempt integer NOT NULL,
    weight integer NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    at bigint NOT NULL,
    record bytea NOT NULL
);

CREATE TABLE results (
    id bigint PRIMARY KEY,
    until bigint NOT NULL,
    result bytea NOT NULL
);
CREATE INDEX results_until ON results (until);

CREATE TABLE dedupes (
    name text PRIMARY KEY,
    task bigint NOT NULL,
    until bigint NOT NULL
);
CREATE INDEX dedupes_until ON dedupes (until);
