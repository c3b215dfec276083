-- Which rule holds for keys that did not choose one: each task under its own limits, or all under the newest sent.
ALTER TABLE cluster ADD COLUMN latest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN chosen INTEGER NOT NULL DEFAULT 0;
UPDATE keys SET chosen = 1 WHERE latest;
