//! The file that transactions are written to before a checkpoint moves them.
//!
//! Owns when a write is kept: when it is on disk, and a process that opens the store by its name finds it. A
//! file that was removed or put aside takes everything in as before, and with the process it is gone.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// How a name says that there is nothing by it.
const GONE: [io::ErrorKind; 2] = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];

/// Open for as long as the store is.
pub(super) struct Log {
    file: File,
    /// The store's own file, this one, and that by which processes agree on what is in this one, as they were found:
    /// with one of its own, another process would write over what is here.
    found: Vec<(PathBuf, Identity)>,
}

impl Log {
    /// That of the store in this file, whose name is as SQLite has it: where a link was given, what it leads to. It is
    /// there for as long as a connection is open that has written, and no lock of SQLite is on it: those a process has
    /// on a file end when it closes that file anywhere.
    pub(super) fn of(store: &Path) -> io::Result<Self> {
        let beside = |end| {
            let mut name = store.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let name = beside("-wal");
        let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", name.display()));
        let file = OpenOptions::new().write(true).open(&name).map_err(told)?;
        // It may be new, and so may the store's file: their names have to be on disk as well.
        File::open(name.parent().unwrap_or(Path::new("/")))?.sync_all().map_err(told)?;
        let found = [store.to_owned(), name, beside("-shm")];
        let found = found.into_iter().map(|name| fs::metadata(&name).map(|is| (name, Identity::of(&is))));
        Ok(Log { file, found: found.collect::<io::Result<_>>()? })
    }

    /// Waits for the disk; then all that was written is kept, or says why it is not.
    pub(super) fn keep(&self) -> io::Result<()> {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("the disk failed: {error}"));
        self.file.sync_data().map_err(failed)?;
        self.found.iter().try_for_each(|(name, was)| match fs::metadata(name) {
            Ok(is) if Identity::of(&is) == *was => Ok(()),
            // It cannot be seen, which says nothing of where it is.
            Err(error) if !GONE.contains(&error.kind()) => Ok(()),
            _ => Err(io::Error::other(format!("{} was removed or replaced", name.display()))),
        })
    }
}

/// What tells a file from another one of the same name.
#[derive(PartialEq, Eq)]
struct Identity(#[cfg(unix)] (u64, u64));

impl Identity {
    #[cfg(unix)]
    fn of(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Identity((file.dev(), file.ino()))
    }

    /// Elsewhere a file that is open keeps its name.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Self {
        Identity()
    }
}
