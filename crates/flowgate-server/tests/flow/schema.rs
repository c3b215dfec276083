//! The OpenAPI document, held against a real server by `schemathesis`: what it says is so, and nothing makes the server fail.

use std::{fs, path::Path, process::Command, sync::OnceLock};

use crate::kit::Kit;

/// What is checked of each answer. What a document of forms cannot say (whether a URL is one) is not: a 400 for it is right.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,ignored_auth";

/// The tool, in an environment of its own.
fn tool() -> &'static Path {
    static INSTALLED: OnceLock<std::path::PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flow-schema");
        fs::create_dir_all(&folder).unwrap();
        let python = folder.join("venv/bin/python");
        if !python.exists() {
            let made = Command::new("python3").args(["-m", "venv", "venv"]).current_dir(&folder).status();
            assert!(
                made.expect("python3 is there: ./test installs it").success(),
                "no environment for Python"
            );
        }
        let install =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "schemathesis==4.32.5"];
        let status = Command::new(&python).args(install).current_dir(&folder).status().unwrap();
        assert!(status.success(), "pip install failed");
        folder.join("venv/bin/schemathesis")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_the_api_is_as_its_document_says_whatever_it_is_sent() {
    // Seen to fail: without `Allow` on a method that a schedule does not have; and with PUT left out of the document.
    let kit = Kit::sqlite();
    let server = kit.server();
    let output = tokio::task::block_in_place(|| {
        Command::new(tool())
            .args(["run", &format!("{}/openapi.json", server.url()), "--seed", "7", "--max-examples", "4"])
            .args(["--phases", "coverage,fuzzing", "--generation-database", "none", "--checks", CHECKS])
            .args(["--header", &format!("Authorization: Bearer {}", server.token)])
            .current_dir(tool().parent().unwrap())
            .output()
            .unwrap()
    });
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("Tested: "), "{told}");
}
