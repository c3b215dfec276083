-- Lists of keys are read in the order of their names, whatever the database's own order is. None of these columns changes with
-- a claim.

CREATE INDEX keys_by_name ON keys (name COLLATE "C");
CREATE INDEX keys_paused ON keys (name COLLATE "C") WHERE paused;
CREATE INDEX keys_pinned ON keys (name COLLATE "C") WHERE pinned IS NOT NULL;
