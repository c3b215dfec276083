//! The commands about runs.

use std::process::{Command, Output};

use http::Method;

use crate::{
    endpoint::Endpoint,
    kit::{Kit, Server},
};

fn run(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(arguments).env("QSTASH_URL", server.url()).env("QSTASH_TOKEN", &server.token);
    tokio::task::block_in_place(|| command.output().unwrap())
}

fn said(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn begin(server: &Server, url: &str) -> String {
    let headers = [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", "parallelism=2")];
    let begun = server.ask(Method::POST, &format!("/v2/trigger/{url}"), &headers, "{}").await.json();
    begun["workflowRunId"].as_str().unwrap().to_owned()
}

on_every_store! {
    #[test]
    async fn f6_runs_are_listed_shown_cancelled_and_begun_again_from_the_command_line(kit: &Kit) {
        // Seen to fail: without the state in the filter of runs, the failed one was listed as started.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let held = begin(&server, &endpoint.url("/hold/run")).await;
        endpoint.holds("run", 1).await;
        let failed = begin(&server, &endpoint.url("/ok/none")).await;
        let path = format!("/v2/workflows/events?workflowRunId={failed}");
        server.until(&path, "it fails", |found| found["runs"][0]["workflowState"] == "RUN_FAILED").await;

        let listed = said(&server, &["runs"]);
        assert_eq!(listed.lines().count(), 3, "{listed}");
        assert!(listed.lines().nth(1).unwrap().starts_with(&failed), "the newest first: {listed}");
        let shape = listed.lines().nth(1).unwrap().replace(|sign: char| sign.is_ascii_digit(), "0");
        assert!(shape.contains("  failed   0000-00-00 00:00:00  "), "when it started is told: {listed}");
        let started = said(&server, &["runs", "--state", "started"]);
        assert!(started.contains(&held) && !started.contains(&failed), "{started}");
        let shown = said(&server, &["run", "show", &failed]);
        assert!(shown.contains("failed  key k  letter dlq_") && shown.contains("init"), "{shown}");

        let again = said(&server, &["run", "resume", &failed]);
        assert!(again.starts_with("wfr_") && again.trim() != failed, "{again}");
        let path = format!("/v2/workflows/events?workflowRunId={}", again.trim());
        server.until(&path, "it fails again", |found| found["runs"][0]["workflowState"] == "RUN_FAILED").await;
        let anew = said(&server, &["run", "restart", again.trim()]);
        assert!(anew.starts_with("wfr_"), "{anew}");

        assert!(said(&server, &["run", "cancel", &held]).contains("is cancelled"));
        assert!(said(&server, &["run", "show", &held]).contains("canceled"));
        let refused = run(&server, &["run", "resume", &held]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("has not failed"));
        assert_eq!(run(&server, &["run", "show", "wfr_nobody"]).status.code(), Some(1));
        endpoint.release(10);
    }
}
