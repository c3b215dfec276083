//! The official SDKs, unmodified, from their registries.
//!
//! Owns the set-up: packages by name into the target folder, once. What is asserted stands in the scripts, in the language of
//! the people who use the SDK.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The scripts, with the packages they import beside them.
fn installed() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk");
    fs::create_dir_all(&target).unwrap();
    for name in ["package.json", "kombo.mjs"] {
        fs::copy(here.join(name), target.join(name)).unwrap();
    }
    let install =
        ["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    let status = Command::new("npm").args(install).current_dir(&target).status();
    assert!(status.expect("npm is there: ./test installs it").success(), "npm install failed in {target:?}");
    target
}

#[test]
fn w2_the_vendors_sdk_understands_the_gateway() {
    // Seen to fail: without `log_url` in the envelope, the SDK throws its validation error instead of the typed one.
    let scripts = installed();
    let directory = scripts.join("kombo");
    fs::create_dir_all(&directory).unwrap();
    let output = Command::new("node")
        .current_dir(&scripts)
        .args(["kombo.mjs", env!("CARGO_BIN_EXE_flowgate")])
        .arg(&directory)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("kombo: all well"), "{told}");
}
