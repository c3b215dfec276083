//! Scripts of other languages, with the packages they import: from their registries, by name.
//!
//! Owns the set-up; what the scripts assert stands in them. Whatever is missing on the machine ends the test with its name.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Puts the files of a folder into another one, and the packages that its `package.json` names beside them.
///
/// # Panics
/// If there is no npm, or it cannot install them.
pub fn install_node(scripts: &Path, into: &Path) {
    fs::create_dir_all(into).expect("a folder");
    for file in fs::read_dir(scripts).expect("the scripts") {
        let path = file.expect("a file").path();
        fs::copy(&path, into.join(path.file_name().expect("its name"))).expect("a copy");
    }
    let install =
        ["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    run("npm install", Command::new("npm").args(install).current_dir(into));
}

/// A Python in this folder that has these packages.
///
/// # Panics
/// If there is no Python, or it cannot install them.
pub fn install_python(folder: &Path, packages: &[&str]) -> PathBuf {
    let python = folder.join("venv/bin/python");
    if !python.exists() {
        run("python3 -m venv", Command::new("python3").args(["-m", "venv", "venv"]).current_dir(folder));
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run("pip install", Command::new(&python).args(install).args(packages));
    python
}

fn run(what: &str, command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{what}: {error}; ./test installs it"));
    assert!(status.success(), "{what} failed: {status}");
}
