//! The programs of others: where they are, and how to have them where they are not.
//!
//! Owns the only command that changes the machine, `apt-get install`, and says so before it runs.

use std::{
    env, fs,
    io::{self, IsTerminal},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use super::accounting;

/// All that may be missing; the packages have the same names.
const PACKAGES: [&str; 3] = ["nginx", "haproxy", "wrk"];

/// Enough open files for all that is measured.
const PLENTY: u64 = 65_536;

/// Where the program is; if it is missing, all that are missing are installed.
pub(super) fn program(name: &str) -> Result<PathBuf, String> {
    if let Some(path) = find(name) {
        return Ok(path);
    }
    let missing: Vec<&str> = PACKAGES.into_iter().filter(|name| find(name).is_none()).collect();
    install(&missing)?;
    find(name).ok_or_else(|| format!("`{name}` is installed, and yet not found"))
}

/// Where the program of another package is; if it is missing, it is installed.
pub(crate) fn program_of(name: &str, package: &str) -> Result<PathBuf, String> {
    if find(name).is_none() {
        install(&[package])?;
    }
    find(name).ok_or_else(|| format!("`{name}` is installed, and yet not found"))
}

/// Where the program is, if it is there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Servers are often not on the path of those who are not root.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether we are root: the owner of what the kernel tells of this process.
pub(super) fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|metadata| metadata.uid() == 0)
}

/// Lets this process, and all it starts, open as many files as it may; says how many that is. Root may raise the bound
/// itself, unless it is in a cage.
pub(super) fn raise_open_files() -> Result<u64, String> {
    let (_, most) = accounting::open_files()?;
    for files in [PLENTY.max(most), most] {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &process::id().to_string(), &format!("--nofile={files}:{files}")]);
        let raised = prlimit.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if raised.is_ok_and(|status| status.success()) {
            break;
        }
    }
    accounting::open_files().map(|(files, _)| files)
}

/// Lets this thread go before all that are not like it, if the kernel permits: so that the load and the service keep their
/// times on a machine that they share with what is measured.
pub(super) fn go_first() -> bool {
    let Some(thread) =
        fs::read_link("/proc/thread-self").ok().and_then(|path| Some(path.file_name()?.to_owned()))
    else {
        return false;
    };
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "--pid", "1"]).arg(thread);
    let set = chrt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    set.is_ok_and(|status| status.success())
}

fn install(packages: &[&str]) -> Result<(), String> {
    let names = packages.join(" ");
    let by_hand = format!("`{names}` missing: install with `apt-get install {names}`, and run this again");
    if find("apt-get").is_none() {
        return Err(format!("{by_hand} (or as your system does it: there is no apt-get here)"));
    }
    if !is_root() && find("sudo").is_none() {
        return Err(format!("{by_hand} (as root: there is no sudo here)"));
    }
    let install: Vec<&str> =
        ["install", "--yes", "--no-install-recommends"].iter().chain(packages).copied().collect();
    eprintln!("installing {names} with apt-get");
    // The list of packages may be old, or not there at all.
    if apt_get(&install) || (apt_get(&["update"]) && apt_get(&install)) { Ok(()) } else { Err(by_hand) }
}

fn apt_get(words: &[&str]) -> bool {
    let mut command = if is_root() {
        Command::new("env")
    } else {
        let mut sudo = Command::new("sudo");
        if !io::stdin().is_terminal() {
            sudo.arg("--non-interactive");
        }
        sudo.arg("env");
        sudo
    };
    // In runlevel 1 Debian does not start the services it installs.
    command.args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"]).args(words);
    // Stdout is for figures.
    let status = command.stdin(Stdio::inherit()).stdout(io::stderr()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_program_is_found_or_not() {
        assert!(find("sh").is_some());
        assert!(find("a-program-that-nobody-has").is_none());
    }
}
