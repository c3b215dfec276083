//! A workflow of so many steps that do nothing: it submits the next step while its delivery is in flight, as clients do.
//!
//! In Rust, because a client's own work would be most of what is measured.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, Request, StatusCode},
    response::{IntoResponse, Response},
    routing::any,
};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::json;
use tokio::{net::TcpListener, sync::Notify};

/// As the server says it of every step.
const STEP: &[u8] = b"\"callType\":\"step\"";

/// What all deliveries share.
pub(super) struct Workflow {
    server: SocketAddr,
    token: String,
    steps: usize,
    client: Client<HttpConnector, Full<Bytes>>,
    ended: AtomicU64,
    changed: Notify,
    /// When each delivery came, and how large it was.
    came: Mutex<Vec<(Instant, usize)>>,
}

impl Workflow {
    /// A workflow of so many steps, and the URL where it listens.
    pub(super) async fn start(
        server: SocketAddr,
        token: &str,
        steps: usize,
    ) -> Result<(Arc<Self>, String), String> {
        let said = |error: std::io::Error| format!("the workflow does not listen: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(said)?;
        let url = format!("http://{}/workflow", listener.local_addr().map_err(said)?);
        let workflow = Arc::new(Workflow {
            server,
            token: token.to_owned(),
            steps,
            client: Client::builder(TokioExecutor::new()).build_http(),
            ended: AtomicU64::new(0),
            changed: Notify::new(),
            came: Mutex::default(),
        });
        let paths = Router::new()
            .fallback(any(deliver))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&workflow));
        tokio::spawn(async move {
            let _ = axum::serve(listener, paths).await;
        });
        Ok((workflow, url))
    }

    /// Begins so many runs, each under the key that is given for its number.
    pub(super) async fn begin(
        &self,
        url: &str,
        runs: usize,
        key: impl Fn(usize) -> (String, u32),
    ) -> Result<(), String> {
        let entry = |number: usize| {
            let (key, parallelism) = key(number);
            json!({
                "destination": url,
                "headers": {
                    "Upstash-Workflow-Init": "true",
                    "Upstash-Workflow-RunId": format!("wfr_{number}"),
                    "Upstash-Workflow-Url": url,
                    "Upstash-Feature-Set": "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
                    "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
                    "Upstash-Flow-Control-Key": key,
                    "Upstash-Flow-Control-Value": format!("parallelism={parallelism}"),
                },
                "body": "{}",
            })
        };
        let entries: Vec<_> = (0..runs).map(entry).collect();
        self.ask(Method::POST, "/v2/batch", json!(entries).to_string()).await
    }

    /// Waits until so many runs have ended.
    pub(super) async fn ended(&self, runs: u64) {
        loop {
            let changed = self.changed.notified();
            if self.ended.load(Ordering::SeqCst) >= runs {
                return;
            }
            changed.await;
        }
    }

    /// When each delivery came, and its size in bytes.
    pub(super) fn came(&self) -> Vec<(Instant, usize)> {
        self.came.lock().expect("nobody panics with it").clone()
    }

    async fn ask(&self, method: Method, path: &str, body: String) -> Result<(), String> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.server))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        if status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&body).into_owned()) }
    }

    /// The next step of a run that has so many.
    async fn go_on(&self, run: &str, url: &str, done: usize) -> Result<(), String> {
        if done == self.steps {
            let path = format!("/v2/workflows/runs/{run}?cancel=false");
            self.ask(Method::DELETE, &path, "\"done\"".to_owned()).await?;
            self.ended.fetch_add(1, Ordering::SeqCst);
            self.changed.notify_waiters();
            return Ok(());
        }
        let number = done + 1;
        let name = format!("step {number}");
        let step = json!({ "stepId": number, "stepName": name, "stepType": "Run", "out": "\"done\"", "concurrent": 1 });
        let entry = json!([{
            "destination": url,
            "headers": {
                "Upstash-Workflow-Init": "false",
                "Upstash-Workflow-RunId": run,
                "Upstash-Workflow-Url": url,
                "Upstash-Feature-Set": "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
                "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
            },
            "body": step.to_string(),
        }]);
        self.ask(Method::POST, "/v2/batch", entry.to_string()).await
    }
}

async fn deliver(State(workflow): State<Arc<Workflow>>, headers: HeaderMap, body: Bytes) -> Response {
    workflow.came.lock().expect("nobody panics with it").push((Instant::now(), body.len()));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let done = body.windows(STEP.len()).filter(|window| *window == STEP).count().saturating_sub(1);
    let answer = workflow.go_on(text("upstash-workflow-runid"), text("upstash-workflow-url"), done).await;
    let status = if answer.is_ok() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, [("Upstash-Workflow-Sdk-Version", "1")], answer.err().unwrap_or_default()).into_response()
}
