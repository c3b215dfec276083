-- Dead tasks are forgotten in the order in which they died.
CREATE INDEX dead_at ON dead (at);
