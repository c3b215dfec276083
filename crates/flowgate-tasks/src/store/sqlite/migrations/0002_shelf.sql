-- What is kept beside tasks: notes about them, and documents of whoever uses the store.

CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX notes_of_task ON notes (task, id);

CREATE TABLE documents (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
