-- Tasks that run and should be stopped: how a worker comes to know that did not hear it when it was said.
CREATE TABLE cancels (
    task bigint PRIMARY KEY,
    until bigint NOT NULL
);
CREATE INDEX cancels_until ON cancels (until);
