//! The blocks of the guide, run as they stand there, but for the port.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use http::Method;

use crate::{
    clients::{command, npm, pip, port},
    kit::{Kit, Server},
};

/// The block of the guide that begins with this line.
fn block(first: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/workflows.md");
    let guide = fs::read_to_string(path).unwrap();
    let (_, behind) = guide.split_once(&format!("\n{first}\n")).unwrap_or_else(|| panic!("no block {first}"));
    behind.split_once("\n```").unwrap().0.to_owned()
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something listens there.
async fn listens(port: u16) {
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        flowgate_testkit::between_looks().await;
    }
}

async fn steps(server: &Server, path: &str) -> Vec<String> {
    let is_over = |found: &serde_json::Value| found["runs"][0]["workflowState"] == "RUN_SUCCESS";
    let found = server.until(path, "the run ends well", is_over).await;
    let groups = found["runs"][0]["steps"].as_array().unwrap().iter();
    groups.map(|group| group["steps"][0]["stepName"].as_str().unwrap().to_owned()).collect()
}

const STEPS: [&str; 4] = ["init", "create user", "wait a moment", "greet"];

on_every_store! {
    #[test]
    async fn the_guides_workflow_runs_as_it_is_written(kit: &Kit) {
        let (server, port) = (kit.server(), port());
        let there = |text: String| text.replace("3000", &port.to_string());
        let folder = npm();
        let (endpoint, trigger) = (format!("endpoint-{port}.mjs"), format!("trigger-{port}.mjs"));
        fs::write(folder.join(&endpoint), there(block("// endpoint.mjs"))).unwrap();
        fs::write(folder.join(&trigger), there(block("// trigger.mjs"))).unwrap();
        let _endpoint = Running(command(&server, "node", &[&endpoint]).stdout(Stdio::null()).spawn().unwrap());
        listens(port).await;
        let begun = tokio::task::block_in_place(|| command(&server, "node", &[&trigger]).output().unwrap());
        assert!(begun.status.success(), "{}", String::from_utf8_lossy(&begun.stderr));
        let id = String::from_utf8(begun.stdout).unwrap().trim().to_owned();
        assert_eq!(steps(&server, &format!("/v2/workflows/events?workflowRunId={id}")).await, STEPS);
        let mut show = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        show.args(["run", "show", &id]).env("QSTASH_URL", server.url()).env("QSTASH_TOKEN", &server.token);
        let shown = String::from_utf8(show.output().unwrap().stdout).unwrap();
        assert!(shown.contains("success  key user-onboarding") && shown.contains("ended after"), "{shown}");
        let begun = server
            .ask(Method::POST, &format!("/v2/trigger/http://localhost:{port}/onboarding"), &[("Content-Type", "application/json")], r#"{"email": "rest"}"#)
            .await
            .json();
        let path = format!("/v2/workflows/events?workflowRunId={}", begun["workflowRunId"].as_str().unwrap());
        assert_eq!(steps(&server, &path).await, STEPS);
    }

    #[test]
    async fn the_guides_workflow_in_python_runs_as_it_is_written(kit: &Kit) {
        let (server, port) = (kit.server(), port());
        let python = tokio::task::block_in_place(pip);
        let name = format!("endpoint_{port}");
        fs::write(npm().join(format!("{name}.py")), block("# endpoint.py")).unwrap();
        let python = python.display().to_string();
        let arguments = ["-m", "uvicorn", &format!("{name}:app"), "--port", &port.to_string(), "--log-level", "error"];
        let _endpoint = Running(command(&server, &python, &arguments).stdout(Stdio::null()).spawn().unwrap());
        listens(port).await;
        let headers = [("Content-Type", "application/json")];
        let url = format!("/v2/publish/http://127.0.0.1:{port}/onboarding");
        server.ask(Method::POST, &url, &headers, r#"{"email": "ada@example.com"}"#).await.json();
        assert_eq!(steps(&server, "/v2/workflows/events").await, STEPS);
    }
}
