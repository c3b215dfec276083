//! A real Prometheus, from Debian's package, on a folder and a port of its own.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Instant,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;

use crate::kit::{DEADLINE, Server};

const MISSING: &str = "Debian's package `prometheus` has it; ./test installs it";

pub(crate) struct Prometheus {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Prometheus {
    /// Scrapes this server every second, with its token.
    pub(crate) fn watching(server: &Server) -> Self {
        let port = flowgate_testkit::free_port().unwrap();
        let folder = std::env::temp_dir().join(format!("flowgate-prometheus-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let config = format!(
            "scrape_configs:\n  - job_name: flowgate\n    scrape_interval: 1s\n    authorization: {{ credentials: '{}' \
                }}\n    static_configs: [{{ targets: ['{}'] }}]\n",
            server.token, server.address
        );
        let file = folder.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(MISSING);
        Prometheus { child, port, folder }
    }

    /// Asks until a query has an answer for which `holds`.
    pub(crate) async fn until(&self, query: &str, holds: impl Fn(f64) -> bool) -> f64 {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let url: http::Uri =
            format!("http://127.0.0.1:{}/api/v1/query?query={query}", self.port).parse().unwrap();
        let started = Instant::now();
        let mut last = Value::Null;
        while started.elapsed() < DEADLINE {
            if let Ok(response) = client.get(url.clone()).await {
                let body = response.into_body().collect().await.unwrap().to_bytes();
                last = serde_json::from_slice(&body).unwrap_or_default();
                let value = last["data"]["result"][0]["value"][1].as_str().and_then(|text| text.parse().ok());
                if let Some(value) = value.filter(|&value| holds(value)) {
                    return value;
                }
            }
            flowgate_testkit::between_looks().await;
        }
        panic!("{query}: not in time; last {last}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What `promtool check metrics` says of a page; nothing, if all is well.
pub(crate) fn lint(page: &str) -> String {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(MISSING);
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.success(), said.trim().is_empty(), "{said}");
    said.trim().to_owned()
}
