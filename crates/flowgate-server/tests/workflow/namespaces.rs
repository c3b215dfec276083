//! Runs in a namespace: everything a workflow can do, and the same run's id elsewhere is another run.

use std::process::Command;

use http::Method;
use serde_json::Value;

use crate::{
    clients::{command, told},
    endpoint::Endpoint,
    kit::{Answer, Kit, Server},
};

const RUN: &str = "wfr_same";

/// A token for this namespace. Made before the server starts, it is known from the first request on.
fn token(kit: &Kit, namespace: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(["token", "create", "--name", "ci", "--namespace", namespace, "--store", &kit.store]);
    let output = tokio::task::block_in_place(|| command.output().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn ask(
    server: &Server,
    token: &str,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers: Vec<_> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
    server.ask_plainly(method, path, &headers, body).await
}

/// The user in the URLs of webhooks, as the clients read it from the token.
fn user(token: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let token: Value = serde_json::from_slice(&STANDARD.decode(token).unwrap()).unwrap();
    token["UserID"].as_str().unwrap().to_owned()
}

async fn runs(server: &Server, token: &str) -> Value {
    ask(server, token, Method::GET, "/v2/workflows/events", &[], "").await.json()["runs"].clone()
}

on_every_store! {
    #[test]
    async fn f5_everything_a_workflow_can_do_works_in_a_namespace(kit: &Kit) {
        // Seen to fail: with webhooks that lead to the runs without a namespace whatever their URL says, which answered 404.
        let token = token(kit, "preview");
        let server = kit.server();
        tokio::task::block_in_place(|| {
            told(&command(&server, "node", &["workflow.mjs"]).env("QSTASH_TOKEN", &token).output().unwrap());
        });
        assert_eq!(runs(&server, &server.token).await, serde_json::json!([]), "nothing of it is elsewhere");
        assert!(!runs(&server, &token).await.as_array().unwrap().is_empty());
    }

    #[test]
    async fn f5_a_run_of_the_same_name_elsewhere_is_another_run(kit: &Kit) {
        // Seen to fail: with webhooks that lead to the runs without a namespace whatever their URL says, the wrong run was told;
        // with a user that is read as it is written, `%7E` led to the wrong one as well.
        let [a, b] = ["a", "b"].map(|namespace| token(kit, namespace));
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let tokens = [server.token.clone(), a, b];
        let url = endpoint.url("/hold/run");
        let begin = [("Upstash-Workflow-RunId", RUN), ("Upstash-Workflow-Init", "true"), ("Upstash-Workflow-Url", &url)];
        let wait = format!(r#"{{"url": "{url}", "timeout": "1d", "step": {{"stepId": 1, "stepName": "w", "stepType": "WaitForWebhook", "concurrent": 1}}}}"#);
        for token in &tokens {
            let begun = ask(&server, token, Method::POST, &format!("/v2/publish/{url}"), &begin, "{}").await;
            assert_eq!((begun.status.as_u16(), begun.json()["deduplicated"].as_bool()), (201, None));
            let waits = ask(&server, token, Method::POST, "/v2/wait/called", &begin[..1], &wait).await;
            assert_eq!(waits.status, 200, "{waits:?}");
            let waiters = ask(&server, token, Method::GET, "/v2/waiters/called", &[], "").await.json();
            assert_eq!(waiters.as_array().unwrap().len(), 1);
        }
        endpoint.holds("run", 3).await;

        // The webhook of one: it alone goes on.
        let hook = |user: &str| format!("/v2/workflows/hooks/{user}/{RUN}/called");
        let encoded = user(&tokens[1]).replace('~', "%7E");
        let called = server.ask_plainly(Method::POST, &hook(&encoded), &[], "hello").await;
        assert_eq!(called.status, 200, "{called:?}");
        endpoint.holds("run", 4).await;
        for (token, steps) in tokens.iter().zip([1, 2, 1]) {
            let found = ask(&server, token, Method::GET, &format!("/v2/workflows/runs/{RUN}"), &[], "").await.json();
            assert_eq!(found.as_array().unwrap().len(), steps, "{found}");
        }
        // An event by name, in one namespace.
        let notified = ask(&server, &tokens[2], Method::POST, "/v2/notify/called", &[], "x").await.json();
        assert_eq!(notified.as_array().unwrap().len(), 1, "{notified}");
        endpoint.holds("run", 5).await;
        // A cancel, likewise.
        let cancelled = ask(&server, &tokens[1], Method::DELETE, &format!("/v2/workflows/runs?workflowRunIds={RUN}"),
            &[], "").await;
        assert_eq!(cancelled.json()["cancelled"], 1);
        for (token, state) in tokens.iter().zip(["RUN_STARTED", "RUN_CANCELED", "RUN_STARTED"]) {
            let found = runs(&server, token).await;
            assert_eq!((found.as_array().unwrap().len(), &found[0]["workflowState"]), (1, &Value::from(state)), "{found}");
        }
        // An ended run has no webhook any more, nor has a namespace that nobody has a token for.
        for user in [user(&tokens[1]), "someone~nowhere".to_owned(), "someone~".to_owned()] {
            let gone = server.ask_plainly(Method::POST, &hook(&user), &[], "").await;
            assert_eq!(gone.status, 404, "{user}: {gone:?}");
        }
        assert_eq!(server.ask_plainly(Method::POST, &hook("anybody"), &[], "").await.status, 200);
        endpoint.release(10);
    }
}
