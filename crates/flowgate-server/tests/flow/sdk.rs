//! The official clients, unmodified, from their registries: the scripts beside this file say what is asserted.
//!
//! Owns the set-up: packages by name into the target folder, once for each run of the tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use flowgate_testkit::scripts::{install_node, install_python};

use crate::kit::Kit;

/// The scripts, with the packages they import beside them.
fn npm() -> &'static PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flow-sdk");
        install_node(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flow/sdk"), &folder);
        folder
    })
}

/// A Python that has the client.
fn pip() -> &'static PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| install_python(npm(), &["qstash==3.4.0"]))
}

/// Runs a script against a server of its own.
fn run(kit: &Kit, program: &str, script: &str, folder: &Path) {
    let server = kit.server();
    let output = Command::new(program)
        .arg(script)
        .current_dir(folder)
        .env("QSTASH_URL", server.url())
        .env("QSTASH_TOKEN", &server.token)
        .env("QSTASH_DEV_PORT", server.address.port().to_string())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("all well"), "{told}");
}

on_every_store! {
    #[test]
    async fn f1_the_seeds_samples_run_as_they_are_written(kit: &Kit) {
        // Seen to fail: with the key left out of the task.
        tokio::task::block_in_place(|| run(kit, "node", "seed.mjs", npm()));
    }

    #[test]
    async fn f7_every_method_of_the_javascript_client_works(kit: &Kit) {
        // Seen to fail: without `period` on a message that has a flow-control key.
        tokio::task::block_in_place(|| run(kit, "node", "qstash.mjs", npm()));
    }

    #[test]
    async fn f7_every_method_of_the_python_client_works(kit: &Kit) {
        // Seen to fail: without `period` on a message that has a flow-control key.
        tokio::task::block_in_place(|| {
            run(kit, &pip().display().to_string(), "qstash_client.py", npm());
        });
    }
}
