//! The official clients from their registries: the scripts beside this file say what is asserted.
//!
//! Owns the set-up: packages by name into the target folder, once for each run of the tests.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use flowgate_testkit::scripts::{install_node, install_python};

use crate::kit::{Kit, Server};

/// The scripts, with the packages they import beside them.
pub(crate) fn npm() -> &'static PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workflow-sdk");
        install_node(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workflow/sdk"), &folder);
        folder
    })
}

/// Python with the clients and what they run in.
pub(crate) fn pip() -> &'static PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        install_python(npm(), &["upstash-workflow==2.0.0", "qstash==3.4.0", "fastapi", "uvicorn"])
    })
}

/// A port that nobody has.
pub(crate) fn port() -> u16 {
    flowgate_testkit::free_port().unwrap()
}

/// A script against this server.
pub(crate) fn command(server: &Server, program: &str, script: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(script)
        .current_dir(npm())
        .env("QSTASH_URL", server.url())
        .env("QSTASH_TOKEN", &server.token);
    command
}

/// What a script said that ended well.
pub(crate) fn told(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("all well"), "{told}");
    told
}

on_every_store! {
    #[test]
    async fn f5_everything_a_workflow_can_do_works_with_the_javascript_client(kit: &Kit) {
        // Seen to fail: with a batch that took only text as a body, the calls of a workflow were refused.
        tokio::task::block_in_place(|| {
            let server = kit.server();
            told(&command(&server, "node", &["workflow.mjs"]).output().unwrap());
        });
    }

    #[test]
    async fn f5_a_workflow_in_python_runs_with_steps_calls_and_failures(kit: &Kit) {
        // Seen to fail: without the answer in the message that brings a call back, the step after it never came.
        tokio::task::block_in_place(|| {
            let server = kit.server();
            let (python, port) = (pip().display().to_string(), port().to_string());
            told(&command(&server, &python, &["workflow.py", &port]).output().unwrap());
        });
    }

    #[test]
    async fn f5_a_workflow_of_the_older_client_runs(kit: &Kit) {
        // Seen to fail: with one name for the plans of all branches, the second of two never ran.
        tokio::task::block_in_place(|| {
            let server = kit.server();
            told(&command(&server, "node", &["legacy.mjs"]).output().unwrap());
        });
    }
}
