//! How many files this process may have open: as many as the system lets it.
//!
//! Every connection is one. What a process gets unless it asks is 1,024 on most systems, for the sake of programs that cannot
//! count further; this one can.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Asks for as many as may be asked for.
pub(super) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // It is a matter of how much is served, not of whether.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
