//! Who tidies up when we cannot: a shell that waits for our end.
//!
//! It holds the reading end of a pipe whose writing end is ours alone. When we end, however we end, it stops the server and
//! removes the folder. A server kept in a `static` is never dropped, and relies on it too.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{error::Error, user::User};

/// Waits for the end of its input; then asks the server to end at once, until it has, and removes all of it. Bounded: a
/// minute at most.
const SCRIPT: &str = r#"
read -r _
cd /
for _ in $(seq 300); do
    pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -s QUIT "$pid" 2>/dev/null || rm -rf "$1"
    [ -e "$1" ] || exit 0
    sleep 0.2
done
rm -rf "$1"
"#;

pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Watches over us and the folder.
    pub(super) fn over(folder: &Path, user: &User) -> Result<Self, Error> {
        use std::os::unix::process::CommandExt;
        let mut shell: Command = user.command("sh", folder);
        shell.args(["-c", SCRIPT, "watchdog"]).arg(folder);
        // Ctrl-C is for us alone: the watchdog must outlive us.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Watchdog).map_err(Error::system("a shell to tidy up"))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
