-- How often a worker has read what it holds, not knowing what became of something: a statement that was on its way before that, and
-- begins after it, claims nothing any more.
ALTER TABLE workers ADD COLUMN era integer NOT NULL DEFAULT 0;
