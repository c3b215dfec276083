-- Notes stand on sheets: one row for all that were written together about tasks of one block, which are 64 by their numbers. A row and an
-- index entry for each note were most of what a log costs.
CREATE TABLE sheets (
    -- That of its first note: the batch of what was written together * 2^20 + the seat in it.
    id INTEGER PRIMARY KEY,
    block INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    -- Of each note: its seat and the length of its body in 4 bytes each, its task and its moment in 8, and its body.
    lines BLOB NOT NULL
) STRICT;
CREATE INDEX sheets_of_block ON sheets (block, id);

-- Those that are there keep their order, and have a sheet each.
INSERT INTO sheets (id, block, latest, lines)
    SELECT id << 20, task >> 6, at, CAST(unhex(printf('%08x%08x%016x%016x', 0, length(body), task, at)) || body AS BLOB) FROM notes
    ORDER BY id;
DROP TABLE notes;
