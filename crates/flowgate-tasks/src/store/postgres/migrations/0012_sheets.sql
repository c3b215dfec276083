-- Notes stand on sheets: one row for all that were written together about tasks of one block, which are 64 by their numbers. A row and two
-- index entries for each note were a third of what a message cost here.
CREATE SEQUENCE note_batches;

CREATE TABLE sheets (
    -- What was written together, and the first seat of it that is on this sheet. A note's number is batch * 2^20 + seat.
    batch bigint NOT NULL,
    seat integer NOT NULL,
    block bigint NOT NULL,
    seats integer[] NOT NULL,
    tasks bigint[] NOT NULL,
    ats bigint[] NOT NULL,
    bodies bytea[] NOT NULL,
    PRIMARY KEY (batch, seat)
);
CREATE INDEX sheets_of_block ON sheets (block, batch);
DO $$ BEGIN
    ALTER TABLE sheets
        ALTER COLUMN seats SET COMPRESSION lz4,
        ALTER COLUMN tasks SET COMPRESSION lz4,
        ALTER COLUMN ats SET COMPRESSION lz4,
        ALTER COLUMN bodies SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;

-- Those that are there keep their order.
INSERT INTO sheets (batch, seat, block, seats, tasks, ats, bodies)
    SELECT id >> 9, min(id & 511), task >> 6, array_agg(id & 511), array_agg(task), array_agg(at), array_agg(body)
    FROM notes GROUP BY id >> 9, task >> 6, CASE WHEN length(body) > 4096 THEN id END;
SELECT setval('note_batches', coalesce(max(batch), 0) + 1) FROM sheets;
DROP TABLE notes;

-- A server of an earlier version may still be at work: it finds them where they were.
CREATE VIEW notes AS SELECT (batch << 20) + line.seat AS id, line.task, line.at, line.body
    FROM sheets CROSS JOIN LATERAL unnest(seats, tasks, ats, bodies) AS line (seat, task, at, body);
CREATE FUNCTION add_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO flowgate.sheets (batch, seat, block, seats, tasks, ats, bodies) VALUES (nextval('flowgate.note_batches'), 1,
        NEW.task >> 6, '{1}', ARRAY[NEW.task], ARRAY[NEW.at], ARRAY[NEW.body]);
    RETURN NEW;
END $$;
CREATE TRIGGER add_note INSTEAD OF INSERT ON notes FOR EACH ROW EXECUTE FUNCTION add_note();
