-- Runs: tasks that follow each other, and the steps they have in common.

CREATE TABLE runs (
    -- The order of the names is the order in which they were started.
    name text COLLATE "C" PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    -- What it was started from, where that must not start two.
    origin text COLLATE "C",
    -- 0 live, 1 done, 2 failed, 3 cancelled.
    state smallint NOT NULL,
    version bigint NOT NULL,
    steps integer NOT NULL,
    bytes bigint NOT NULL,
    created bigint NOT NULL,
    ended bigint,
    head bytea NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX runs_live ON runs (id) WHERE state = 0;
CREATE UNIQUE INDEX runs_of_origin ON runs (origin) WHERE origin IS NOT NULL;
CREATE INDEX runs_of_id ON runs (id, name);
CREATE INDEX runs_ended ON runs (ended) WHERE ended IS NOT NULL;

CREATE TABLE steps (
    run text COLLATE "C" NOT NULL,
    -- Steps of one name are one step: the first.
    name text COLLATE "C" NOT NULL,
    -- The task that the step is the beginning of; also the order of the steps.
    task bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, name)
);
