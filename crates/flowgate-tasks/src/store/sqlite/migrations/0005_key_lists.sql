-- Lists of keys that are paused or pinned are read in the order of their names, without looking at the others.

CREATE INDEX keys_paused ON keys (name) WHERE paused = 1;
CREATE INDEX keys_pinned ON keys (name) WHERE pinned IS NOT NULL;
