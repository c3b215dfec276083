-- No task of the lane stands before this place, nor ever will: claims begin there. While somebody's transaction stays open, the
-- server keeps what claims have taken, and without a mark each of them would step over all of it. Not a column of the lanes: what
-- a mark leaves behind when it is moved is nothing that claims read.
CREATE TABLE marks (
    lane bigint PRIMARY KEY,
    low bigint NOT NULL
) WITH (fillfactor = 50);

-- Whether a worker puts nothing before a mark. One of an earlier version might: while it is there, marks stay as they are.
ALTER TABLE workers ADD COLUMN minds_marks boolean NOT NULL DEFAULT false;

-- What goes back to the front may stand at the same place: then the number decides.
CREATE INDEX tasks_in_order ON tasks (lane, place, id);
DROP INDEX tasks_in_line;
