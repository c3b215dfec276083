//! Opening a file, and bringing its tables up to date.
//!
//! Owns the settings of a connection and the migrations. Any number of processes may open the same new file at once: one of
//! them makes the tables, under a write lock, and the others find them made.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{error::Fault, log::Log};
use crate::store::StoreError;

/// Each brings the tables from its index to the next version.
const MIGRATIONS: [&str; 10] = [
    include_str!("migrations/0001_tasks.sql"),
    include_str!("migrations/0002_shelf.sql"),
    include_str!("migrations/0003_runs.sql"),
    include_str!("migrations/0004_ahead.sql"),
    include_str!("migrations/0005_key_lists.sql"),
    include_str!("migrations/0006_latest.sql"),
    include_str!("migrations/0007_dead.sql"),
    include_str!("migrations/0008_server_queue.sql"),
    include_str!("migrations/0009_sheets.sql"),
    include_str!("migrations/0010_short_sheets.sql"),
];
/// Longer than any commit of another process, for those who open the file and those who read it.
const BUSY: Duration = Duration::from_secs(30);
/// More than there are statements in this folder.
const STATEMENTS: usize = 128;

/// Bytes in a page of a new file; one that is there keeps its own. What is written together is large, sheets of notes
/// and the tasks of a lease, and each page of it costs two calls of the system: with the 4096 bytes of the default, 1.3
/// of them for a message, and 7 % more of the server's processor time.
const PAGE: u32 = 8192;
/// So many bytes of transactions are moved into the file at once.
const CHECKPOINT: u32 = 32 * 1024 * 1024;

/// Everything about a connection that SQLite does not keep in the file. A commit is not on disk when it returns: see
/// [`super::disk`].
///
/// The cache is small on purpose: nearly every commit has split a page, and while it does so SQLite gives one the
/// highest number there is, after which it walks over all of its cache to forget pages behind the end. Of 64 MiB that
/// was an eighth of the writer's time; what is not in the cache is in the mapped file.
const SETTINGS: &str = "
    PRAGMA synchronous = NORMAL;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -16384;
    PRAGMA mmap_size = 268435456;
    PRAGMA journal_size_limit = 67108864;
";

/// The connection that writes, and what its transactions go to; `None`: they are kept nowhere.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) log: Option<Log>,
}

/// The connection that writes.
pub(super) fn writer(path: &Path) -> Result<Opened, StoreError> {
    let open = || -> Result<Opened, Fault> {
        let db = Connection::open(path)?;
        db.busy_timeout(BUSY)?;
        // Of a file that has tables nothing changes.
        db.execute_batch(&format!("PRAGMA page_size = {PAGE}"))?;
        // Kept in the file. The busy timeout does not cover it while another process switches at the same moment, so it
        // is done under the same lock as the migrations: by whoever comes first.
        switch_to_wal(&db)?;
        let writer = prepare(db)?;
        let log = Log::of(Path::new(writer.path().unwrap_or_default()));
        let why = |error: std::io::Error| StoreError::Database {
            doing: "opening the file",
            why: error.to_string(),
        };
        Ok(Opened { log: Some(log.map_err(why)?), writer })
    };
    open().map_err(|fault| match path_fault(path, &fault) {
        Some(why) => StoreError::Database { doing: "opening the file", why },
        None => fault.while_it("opening the file"),
    })
}

/// What about the path keeps it from being opened, where SQLite only says that it cannot. Nothing is opened to find
/// out: who closes a file gives up all locks that its process has on it.
fn path_fault(path: &Path, fault: &Fault) -> Option<String> {
    let Fault::Sql(error) = fault else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match error.sqlite_error_code()? {
        _ if path.is_dir() => Some(format!("{} is a folder; name a file in it", path.display())),
        _ if !folder.is_dir() => Some(format!("folder {} does not exist; create it first", folder.display())),
        ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
            Some(format!("this user may not write to {} or to its folder", path.display()))
        }
        ErrorCode::NotADatabase => {
            Some(format!("{} is not a SQLite file; name another file", path.display()))
        }
        _ => None,
    }
}

/// A store that ends with its connection.
pub(super) fn in_memory() -> Result<Opened, StoreError> {
    let open = || -> Result<Opened, Fault> {
        Ok(Opened { writer: prepare(Connection::open_in_memory()?)?, log: None })
    };
    open().map_err(|fault| fault.while_it("opening a store in memory"))
}

/// A connection that only reads, to a file that a writer has opened.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> Result<Connection, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(BUSY)?;
        settle_in(&db)?;
        Ok(db)
    };
    open().map_err(|fault| fault.while_it("opening the file for reading"))
}

fn switch_to_wal(db: &Connection) -> Result<(), Fault> {
    // Two processes that switch a new file at the same moment may each find it locked by the other, at once.
    for _ in 0..1000 {
        match db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other.map(drop).map_err(Fault::from),
        }
    }
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).map_err(Fault::from)
}

fn settle_in(db: &Connection) -> Result<(), Fault> {
    db.execute_batch(SETTINGS)?;
    let page: u32 = db.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    db.query_row(&format!("PRAGMA wal_autocheckpoint = {}", CHECKPOINT / page), [], |_| Ok(()))?;
    // One plan for each statement, whatever its values: else SQLite may parse it again for every new value.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

fn prepare(mut db: Connection) -> Result<Connection, Fault> {
    settle_in(&db)?;
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let version = version as usize;
    if version > MIGRATIONS.len() {
        return Err(StoreError::Database {
            doing: "opening the file",
            why: format!(
                "its tables have version {version}, and this program supports up to version {}",
                MIGRATIONS.len()
            ),
        }
        .into());
    }
    for migration in &MIGRATIONS[version..] {
        transaction.execute_batch(migration)?;
    }
    transaction.execute_batch(&format!("PRAGMA user_version = {}", MIGRATIONS.len()))?;
    transaction.commit()?;
    Ok(db)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_has_large_pages_and_an_older_one_keeps_its_own() {
        // Seen to fail: with the page size told after the switch to WAL; and with the checkpoint left at its default of
        // 1000 pages.
        let file =
            |name: &str| std::env::temp_dir().join(format!("flowgate-{name}-{}.db", std::process::id()));
        let (new, old) = (file("new"), file("old"));
        let before = Connection::open(&old).expect("a file");
        before
            .execute_batch("PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; CREATE TABLE one (id)")
            .expect("a table");
        drop(before);
        for (path, page) in [(&new, PAGE), (&old, 4096)] {
            let Opened { writer, .. } = writer(path).expect("it is opened");
            let reader = reader(path).expect("to be read as well");
            for db in [&writer, &reader] {
                let told = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u32>(0)).expect("a number");
                assert_eq!(told("PRAGMA page_size"), page);
                assert_eq!(told("PRAGMA wal_autocheckpoint") * page, CHECKPOINT);
            }
            drop((writer, reader));
            std::fs::remove_file(path).expect("removed");
        }
    }
}
