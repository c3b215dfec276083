//! Where messages are kept, as the command line says it.

use std::{fmt, path::PathBuf, sync::Arc, thread};

use flowgate_tasks::store::{Postgres, Shelf, Sqlite, StoreError};
use tokio::{runtime::Handle, sync::oneshot};

use crate::config::StoreAddress;

/// A store that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreAt {
    /// A file.
    Sqlite(PathBuf),
    /// Gone when the server ends.
    Memory,
    /// A database, by its URL.
    Postgres(String),
}

impl StoreAt {
    /// The store that this text names.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(StoreAt::Postgres(text.to_owned()));
        }
        match text.strip_prefix("sqlite:") {
            Some(":memory:") => Ok(StoreAt::Memory),
            Some(path) if !path.is_empty() => Ok(StoreAt::Sqlite(PathBuf::from(path))),
            _ => Err("accepted: sqlite:PATH, sqlite::memory: or postgres://user@host/database"),
        }
    }

    /// The same with a path that means the same wherever it is read.
    pub(crate) fn absolute(self) -> Self {
        match self {
            StoreAt::Sqlite(path) => StoreAt::Sqlite(std::path::absolute(&path).unwrap_or(path)),
            at => at,
        }
    }

    /// Opens it, and brings its tables up to date.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Shelf>, StoreError> {
        Ok(match self {
            StoreAt::Sqlite(path) => Arc::new(open_file(path.clone()).await?),
            StoreAt::Memory => Arc::new(Sqlite::in_memory()?),
            StoreAt::Postgres(url) => Arc::new(Postgres::connect(url).await?),
        })
    }
}

/// On a thread of its own, for it waits for whoever has the file; and not on one that the runtime waits for when the
/// program is told to end.
async fn open_file(path: PathBuf) -> Result<Sqlite, StoreError> {
    let (told, opened) = oneshot::channel();
    let runtime = Handle::current();
    let open = move || {
        let _inside = runtime.enter();
        drop(told.send(Sqlite::open(path)));
    };
    let failed = |why: String| StoreError::Database { doing: "opening its file", why };
    thread::Builder::new()
        .name("flowgate-open".to_owned())
        .spawn(open)
        .map_err(|error| failed(error.to_string()))?;
    opened.await.map_err(|_| failed("it panicked".to_owned()))?
}

/// As the configuration names it.
impl From<&StoreAddress> for StoreAt {
    fn from(address: &StoreAddress) -> Self {
        match address {
            StoreAddress::Sqlite(path) if path.as_os_str() == ":memory:" => StoreAt::Memory,
            StoreAddress::Sqlite(path) => StoreAt::Sqlite(path.clone()),
            StoreAddress::Postgres(url) => StoreAt::Postgres(url.clone()),
        }
    }
}

/// Without what is nobody's business: a URL may have a password in it.
impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAt::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreAt::Memory => f.write_str("sqlite::memory:"),
            StoreAt::Postgres(url) => {
                let plain = url.split('?').next().unwrap_or_default();
                let place = plain.split_once("://").map_or(plain, |(_, rest)| rest);
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                write!(f, "postgres://{place}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_and_told_without_its_password() {
        let table = [
            ("sqlite:flowgate.db", "sqlite:flowgate.db"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("postgres://me:s3cret@db:5432/flow?sslmode=disable", "postgres://db:5432/flow"),
        ];
        for (text, told) in table {
            assert_eq!(StoreAt::read(text).expect("a store").to_string(), told);
        }
        for text in ["", "sqlite:", "flowgate.db", "mysql://x"] {
            assert!(StoreAt::read(text).is_err(), "{text}");
        }
    }
}
