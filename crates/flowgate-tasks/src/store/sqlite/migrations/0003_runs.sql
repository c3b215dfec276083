-- Runs: tasks that follow each other, and the steps they have in common.

CREATE TABLE runs (
    -- The order of the names is the order in which they were started.
    name TEXT PRIMARY KEY,
    id TEXT NOT NULL,
    -- What it was started from, where that must not start two.
    origin TEXT,
    -- 0 live, 1 done, 2 failed, 3 cancelled.
    state INTEGER NOT NULL,
    version INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    created INTEGER NOT NULL,
    ended INTEGER,
    head BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX runs_live ON runs (id) WHERE state = 0;
CREATE UNIQUE INDEX runs_of_origin ON runs (origin) WHERE origin IS NOT NULL;
CREATE INDEX runs_of_id ON runs (id, name);
CREATE INDEX runs_ended ON runs (ended) WHERE ended IS NOT NULL;

CREATE TABLE steps (
    run TEXT NOT NULL,
    -- Steps of one name are one step: the first.
    name TEXT NOT NULL,
    -- The task that the step is the beginning of; also the order of the steps.
    task INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
