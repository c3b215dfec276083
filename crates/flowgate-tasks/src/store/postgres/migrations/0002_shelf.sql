-- What is kept beside tasks: notes about them, and documents of whoever uses the store.

CREATE TABLE notes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX notes_of_task ON notes (task, id);

CREATE TABLE documents (
    kind text NOT NULL,
    name text NOT NULL COLLATE "C",
    version bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (kind, name)
);
