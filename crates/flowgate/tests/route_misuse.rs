//! R1: what is in the wrong place does not compile, and the compiler says why.
//!
//! Each file of `misuse/` begins with what the compiler has to say. They are checked against the library that this test was
//! built with, which takes a moment; a tool that builds a project for them would build every dependency anew.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn r1_misuse_does_not_compile_and_says_why() {
    // Seen to fail: with `build` not asking for `Complete`, the first case compiles.
    let misuse = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misuse");
    let control = misuse.join("right_place.rs");
    // There may be several, built with other features: the right one is one with which the right use compiles.
    let library = libraries().into_iter().find(|library| check(library, &control).is_ok());
    let library = library.expect("the library that this test was built with lies beside it");
    let mut count = 0;
    for entry in fs::read_dir(misuse).unwrap() {
        let path = entry.unwrap().path();
        if path == control {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let told = check(&library, &path).expect_err("it must not compile");
        let expected: Vec<_> = source.lines().filter_map(|line| line.strip_prefix("//! Told: ")).collect();
        assert!(!expected.is_empty(), "{} says nothing of what is expected", path.display());
        for line in expected {
            assert!(told.contains(line), "{}: `{line}` is not told:\n{told}", path.display());
        }
        count += 1;
    }
    assert_eq!(count, 7);
}

/// The builds of this crate beside this test, the newest first.
fn libraries() -> Vec<PathBuf> {
    let dependencies = env::current_exe().unwrap().parent().unwrap().to_owned();
    let entries = fs::read_dir(dependencies).unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libflowgate-") && name.ends_with(".rlib")
    };
    let mut found: Vec<_> = entries.filter(is_ours).collect();
    found.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    found.reverse();
    found
}

/// Compiles one file up to the point where something would be written; what the compiler said, if it does not.
fn check(library: &Path, file: &Path) -> Result<(), String> {
    let written = env::temp_dir().join(format!("flowgate-misuse-{}", std::process::id()));
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "-o"])
        .arg(&written)
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg("--extern")
        .arg(format!("flowgate={}", library.display()))
        .arg(file)
        .output()
        .unwrap();
    let _ = fs::remove_file(written);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
