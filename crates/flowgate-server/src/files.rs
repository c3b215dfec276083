//! How many files this process may have open: as many as the system lets it.
//!
//! Every connection is a file, and so is every pipe of a worker to a child. Unless it asks, a process gets
//! 1,024 on most systems, for the sake of programs that cannot count further; this one can.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Asks for as many as may be asked for, and gives how many they were.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // It is a matter of how much is served, not of whether.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    current
}

/// Makes them as many as they were: whatever is started next may be one that cannot count further.
pub(crate) fn lower(files: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum });
}
