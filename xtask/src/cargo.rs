//! Runs cargo for the chores that need it: benchmarks, loom models and generated pages.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

/// Runs a suite of the benchmarks with its options.
pub(crate) fn bench(root: &Path, words: &[String]) -> io::Result<ExitStatus> {
    let run = ["run", "--release", "--quiet", "--package", "flowgate-bench", "--"];
    cargo(root).args(run).args(words).status()
}

/// What the server prints when it is asked for a reference page.
pub(crate) fn printed(root: &Path, page: &str) -> io::Result<Output> {
    let run = ["run", "--quiet", "--package", "flowgate-server", "--", "reference", page];
    cargo(root).args(run).stderr(Stdio::inherit()).output()
}

/// Runs the loom models, in a target folder of their own: `--cfg loom` rebuilds everything.
pub(crate) fn loom(root: &Path, options: &[String]) -> io::Result<ExitStatus> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let preemptions = env::var_os("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|| "3".into());
    cargo(root)
        .args(["test", "--release", "--package", "flowgate", "--test", "loom", "--target-dir"])
        .arg(Path::new(&target).join("loom"))
        .args(options)
        .env("RUSTFLAGS", with_loom(env::var_os("RUSTFLAGS")))
        // It would win over RUSTFLAGS, and the models would silently be left out.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("LOOM_MAX_PREEMPTIONS", preemptions)
        .status()
}

/// Runs the servers under fire for so long.
pub(crate) fn soak(root: &Path, length: Option<&str>) -> io::Result<ExitStatus> {
    let test = ["test", "--release", "--package", "flowgate-server", "--test", "soak", "--", "--nocapture"];
    cargo(root).args(test).env("FLOWGATE_SOAK", length.unwrap_or("10m")).status()
}

fn with_loom(flags: Option<OsString>) -> OsString {
    let mut flags = flags.unwrap_or_default();
    if !flags.is_empty() {
        flags.push(" ");
    }
    flags.push("--cfg loom");
    flags
}

/// The cargo that runs us, at the root.
fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

#[cfg(test)]
mod tests {
    use super::with_loom;

    #[test]
    fn the_loom_flag_joins_the_flags_that_are_set() {
        assert_eq!(with_loom(None), "--cfg loom");
        assert_eq!(with_loom(Some("-C debuginfo=1".into())), "-C debuginfo=1 --cfg loom");
    }
}
