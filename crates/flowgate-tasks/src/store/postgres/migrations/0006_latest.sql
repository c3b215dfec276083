-- Which rule holds for keys that did not choose one: each task under its own limits, or all under the newest sent.
ALTER TABLE cluster ADD COLUMN latest boolean NOT NULL DEFAULT false;
ALTER TABLE keys ADD COLUMN chosen boolean NOT NULL DEFAULT false;
UPDATE keys SET chosen = true WHERE latest;
