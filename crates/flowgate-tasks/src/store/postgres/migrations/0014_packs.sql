-- The bodies of notes that were written together stand in packs, each with only what differs from one before it: see `packs.rs`. Sheets that
-- are there keep theirs, and are read as before.
CREATE TABLE packs (
    batch bigint NOT NULL,
    -- The first seat of the batch whose body is here; the others follow without a gap.
    seat integer NOT NULL,
    bodies bytea NOT NULL,
    PRIMARY KEY (batch, seat)
);
DO $$ BEGIN
    ALTER TABLE packs ALTER COLUMN bodies SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
ALTER TABLE sheets ALTER COLUMN bodies DROP NOT NULL;
