-- What a worker claimed ahead: one task to a lease, until then. It counts in no cap.
ALTER TABLE leases ADD COLUMN ahead_until bigint;
CREATE INDEX leases_ahead ON leases (ahead_until) WHERE ahead_until IS NOT NULL;
