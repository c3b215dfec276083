//! `store`: where tasks wait.
//!
//! Owns its text forms. It opens nothing.

use std::{fmt, path::PathBuf};

use super::{
    error::Origin,
    read::{Entry, Read, without_password},
};

const ACCEPTED: &str = "\"sqlite:flowgate.db\" or \"postgres://user@host/database\"";

/// Where tasks wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreAddress {
    /// One file. A path in the config file is relative to that file; here it is not any more.
    Sqlite(PathBuf),
    /// The URL of a database.
    Postgres(String),
}

impl StoreAddress {
    pub(super) fn read(entry: &Entry<'_>) -> Read<Self> {
        let text = entry.text(ACCEPTED)?;
        if let Some(path) = text.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            let folder = match entry.stands.origin {
                Origin::File(_) => entry.report.folder().unwrap_or_default(),
                _ => PathBuf::new(),
            };
            return Ok(StoreAddress::Sqlite(folder.join(path)));
        }
        let has_host = |scheme: &str| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
        if has_host("postgres://") || has_host("postgresql://") {
            return Ok(StoreAddress::Postgres(text.to_owned()));
        }
        Err(entry.wrong(ACCEPTED))
    }
}

/// As it is written, but for a password.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreAddress::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}
