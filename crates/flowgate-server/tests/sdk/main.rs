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

use flowgate_testkit::scripts::install_node;

/// The scripts, with the packages they import beside them.
fn installed() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk");
    install_node(&here, &target);
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
