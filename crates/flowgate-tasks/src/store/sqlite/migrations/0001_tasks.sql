-- Tasks and all that is counted about them. Moments are nanoseconds since the Unix epoch.

-- One row: the last number given to a task or to a place in line.
CREATE TABLE numbers (last INTEGER NOT NULL);
INSERT INTO numbers VALUES (0);

-- One row: the cap over everything. Nothing is counted while there is no cap.
CREATE TABLE cluster (cap INTEGER CHECK (cap > 0), in_use INTEGER NOT NULL);
INSERT INTO cluster VALUES (NULL, 0);

-- Nothing is counted for a queue without a max.
CREATE TABLE queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    priority INTEGER NOT NULL DEFAULT 100,
    max INTEGER CHECK (max > 0),
    in_use INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    in_use INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0,
    -- Limits that overrule all that were sent, as text.
    pinned TEXT,
    -- The newest limits sent, and whether these govern all that wait.
    sent TEXT NOT NULL DEFAULT '',
    latest INTEGER NOT NULL DEFAULT 0,
    -- What is spent, under each rate.
    rates TEXT NOT NULL DEFAULT ''
) STRICT;

-- Tasks that differ in nothing but their order: the unit of service.
CREATE TABLE lanes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    -- 0: none.
    key INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    limits TEXT NOT NULL,
    -- 0 idle: nothing in line. 1 ready: to be looked at. 2 held by its key. 3 held by a rate, until wake_at.
    state INTEGER NOT NULL DEFAULT 0,
    wake_at INTEGER
) STRICT;
CREATE UNIQUE INDEX lanes_are_one ON lanes (key, queue, priority, limits);
CREATE INDEX lanes_ready ON lanes (queue, priority, id) WHERE state = 1;
CREATE INDEX lanes_held ON lanes (key) WHERE state = 2;
CREATE INDEX lanes_waking ON lanes (wake_at) WHERE state = 3;

-- Tasks that nobody holds. Those in line have a place, delayed ones have none.
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    place INTEGER,
    attempt INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    due_at INTEGER,
    good_until INTEGER,
    record BLOB NOT NULL
) STRICT;
CREATE INDEX tasks_in_line ON tasks (lane, place);
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_good ON tasks (good_until) WHERE good_until IS NOT NULL;

CREATE TABLE workers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    slots INTEGER NOT NULL,
    -- The rows of the queues it serves, with commas between them. Empty: all.
    queues TEXT NOT NULL,
    lease INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    since INTEGER NOT NULL
) STRICT;
CREATE INDEX workers_until ON workers (lease_until);

-- What one claim took. Its id is the fencing token of its tasks.
CREATE TABLE leases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    worker INTEGER NOT NULL,
    since INTEGER NOT NULL,
    count INTEGER NOT NULL,
    -- The lowest and the highest task in it.
    lowest INTEGER NOT NULL,
    highest INTEGER NOT NULL,
    -- The tasks of it that ended, packed.
    done BLOB NOT NULL
) STRICT;
CREATE INDEX leases_of_worker ON leases (worker);

-- The tasks of a lease, packed: apart from it, so that a task's end does not write all the others again.
CREATE TABLE held (
    lease INTEGER PRIMARY KEY,
    facts BLOB NOT NULL,
    records BLOB NOT NULL
) STRICT;

CREATE TABLE dead (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    key TEXT,
    priority INTEGER NOT NULL,
    limits TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    reason TEXT NOT NULL,
    error TEXT NOT NULL,
    at INTEGER NOT NULL,
    record BLOB NOT NULL
) STRICT;

CREATE TABLE results (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    key TEXT,
    priority INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    until INTEGER NOT NULL,
    result BLOB NOT NULL
) STRICT;
CREATE INDEX results_until ON results (until);

-- Tasks that run and should be stopped: how a worker of another process comes to know.
CREATE TABLE cancels (
    task INTEGER PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT;

CREATE TABLE dedupes (
    name TEXT PRIMARY KEY,
    task INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT;
CREATE INDEX dedupes_until ON dedupes (until);
