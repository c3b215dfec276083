//! The real binary on a store of its own, and words for what tests ask of it.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flowgate_tasks::{
    NewTask, TaskId,
    store::{Postgres, Sqlite, Store},
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

/// Longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// Runs each test on every store.
macro_rules! on_every_store {
    ($(#[test] async fn $name:ident($kit:ident: &Kit) $body:block)*) => {
        mod laws {
            #[allow(unused_imports, reason = "each file uses its own part")]
            use super::*;
            $(pub(super) async fn $name($kit: &Kit) $body)*
        }

        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::laws::$name(&crate::kit::Kit::sqlite()).await;
                }
            )*
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::laws::$name(&crate::kit::Kit::postgres(stringify!($name)).await).await;
                }
            )*
        }
    };
}

/// A store, and the folder of its own that goes with the test.
pub(crate) struct Kit {
    pub(crate) store: String,
    folder: PathBuf,
}

impl Kit {
    pub(crate) fn sqlite() -> Self {
        let folder = folder();
        Kit { store: format!("sqlite:{}", folder.join("flowgate.db").display()), folder }
    }

    pub(crate) async fn postgres(name: &str) -> Self {
        let name = name.to_owned();
        let made = tokio::task::spawn_blocking(move || {
            flowgate_testkit::postgres::Postgres::shared().create_database(&name).unwrap()
        });
        Kit { store: made.await.unwrap(), folder: folder() }
    }

    /// A store that a test started itself.
    pub(crate) fn on(store: &str) -> Self {
        Kit { store: store.to_owned(), folder: folder() }
    }

    /// Does something to a store of SQLite behind the back of its server.
    pub(crate) fn alter(&self, sql: &str) {
        let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=30); db.executescript(sys.argv[2])";
        let path = self.store.strip_prefix("sqlite:").unwrap();
        let done = Command::new("python3").args(["-c", script, path, sql]).status();
        assert!(done.expect("python3 is there: ./test installs it").success(), "{sql}");
    }

    /// What servers had that were killed is others' at once: of all there have been.
    pub(crate) fn end_leases(&self) {
        self.end_leases_of("");
    }

    /// Of the one that began before all others that there are.
    pub(crate) fn end_lease_of_the_first(&self) {
        self.end_leases_of("WHERE id = (SELECT min(id) FROM workers)");
    }

    fn end_leases_of(&self, which: &str) {
        let end = format!("UPDATE workers SET lease_until = 0 {which};");
        match self.store.starts_with("sqlite:") {
            true => self.alter(&end),
            false => {
                let end = format!("SET search_path TO flowgate; {end}");
                flowgate_testkit::postgres::Postgres::shared().psql(&self.store, &end).unwrap();
            }
        }
    }

    /// The store, as a program beside the server has it.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match self.store.strip_prefix("sqlite:") {
            Some(path) => Arc::new(Sqlite::open(path).unwrap()),
            None => Arc::new(Postgres::connect(&self.store).await.unwrap()),
        }
    }

    /// Sends a task as a program beside the server does.
    pub(crate) async fn send(&self, task: NewTask) -> TaskId {
        self.send_all(vec![task]).await[0]
    }

    pub(crate) async fn send_all(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        self.open().await.send(tasks).await.unwrap().into_iter().map(|sent| sent.id).collect()
    }

    /// A server on this store, with the development token.
    pub(crate) fn server(&self) -> Server {
        self.server_with(&["--dev"])
    }

    /// Writes a file into the test's folder, and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The same, with this configuration.
    pub(crate) fn server_after(&self, config: &str) -> Server {
        self.server_with(&["--dev", "--config", &self.write("mine.toml", config)])
    }

    pub(crate) fn server_with(&self, options: &[&str]) -> Server {
        self.server_on("127.0.0.1:0", options)
    }

    /// A server at this address, where one may have been before.
    pub(crate) fn server_on(&self, address: &str, options: &[&str]) -> Server {
        Server::start(&self.store, address, options, &self.folder)
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("flowgate-flow-{}-{number}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A server process, ended with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) greeting: String,
    /// What it said after that.
    said: watch::Receiver<String>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// What the server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The body of a request that worked.
    pub(crate) fn json(&self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// A header of it, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// What was wrong with it.
    pub(crate) fn error(&self) -> String {
        let body: Value = serde_json::from_str(&self.text).unwrap();
        body["error"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

impl Server {
    fn start(store: &str, listen: &str, options: &[&str], folder: &PathBuf) -> Self {
        // Without that signal, a limit on the size of its files is to it what a full disk is.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_flowgate")]);
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("FLOWGATE_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--listen", listen, "--store", store]).args(options);
        let mut child =
            command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut greeting = String::new();
        while !greeting.contains("Ctrl-C") {
            let line = lines.next().expect("the greeting has an end").unwrap();
            greeting.extend([line.as_str(), "\n"]);
        }
        // Whatever it says later must not stop it.
        let (hears, said) = watch::channel(String::new());
        std::thread::spawn(move || {
            let hear = |line: String| hears.send_modify(|said| said.extend([line.as_str(), "\n"]));
            lines.map_while(Result::ok).for_each(hear);
        });
        let after = |text: &str| greeting.split(text).nth(1).unwrap().trim().to_owned();
        let address = after("listens on http://").split('/').next().unwrap().parse().unwrap();
        // One that was made before is not told.
        let token = greeting.split("QSTASH_TOKEN='").nth(1).and_then(|rest| rest.split('\'').next());
        let token = token.unwrap_or_default().to_owned();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Server { child, address, token, greeting, said, client }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A request with the token.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let token = format!("Bearer {}", self.token);
        let headers: Vec<_> = headers.iter().copied().chain([("authorization", token.as_str())]).collect();
        self.ask_plainly(method, path, &headers, body).await
    }

    /// A request with these headers and no others.
    pub(crate) async fn ask_plainly(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = self.client.request(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, text: String::from_utf8_lossy(&body).into_owned() }
    }

    /// An answer that has no end: it lasts for as long as it is kept.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> (StatusCode, Incoming) {
        let mut request = Request::builder().uri(format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.request(request.body(Full::default()).unwrap()).await.unwrap();
        (response.status(), response.into_body())
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, &[], "").await.json()
    }

    pub(crate) async fn post(&self, path: &str) -> Value {
        self.ask(Method::POST, path, &[], "").await.json()
    }

    /// Publishes a message, and gives its id.
    pub(crate) async fn publish(&self, url: &str, headers: &[(&str, &str)]) -> String {
        let answer = self.ask(Method::POST, &format!("/v2/publish/{url}"), headers, "body").await.json();
        answer["messageId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Asks until it holds.
    pub(crate) async fn until(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let found = self.ask(Method::GET, path, &[], "").await;
            let found: Value = serde_json::from_str(&found.text).unwrap_or(Value::Null);
            if holds(&found) {
                return found;
            }
            assert!(started.elapsed() < DEADLINE, "{what}: not in time; last {found}");
            flowgate_testkit::between_looks().await;
        }
    }

    /// Waits until a key has so many in flight and so many in line.
    pub(crate) async fn key(&self, key: &str, in_flight: u64, in_line: u64) -> Value {
        self.until(
            &format!("/v2/flowControl/{key}"),
            &format!("{in_flight} in flight, {in_line} in line"),
            |found| {
                in_flight + in_line == 0 && found["error"].is_string()
                    || found["parallelismCount"] == in_flight && found["waitListSize"] == in_line
            },
        )
        .await
    }

    /// Waits for an entry of the log.
    pub(crate) async fn logged(&self, id: &str, state: &str) -> Value {
        let path = format!("/v2/events?messageIds={id}&state={state}");
        let found =
            self.until(&path, &format!("{id} is {state}"), |found| found["events"][0].is_object()).await;
        found["events"][0].clone()
    }

    /// The memory it has now, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// From now on it cannot write to its files any more, or can again.
    pub(crate) fn set_full(&self, is_full: bool) {
        let script = "import resource as r, sys; at, full = map(int, sys.argv[1:]); r.prlimit(at, r.RLIMIT_FSIZE, (1 \
            if full else r.RLIM_INFINITY, r.RLIM_INFINITY))";
        let (process, full) = (self.child.id().to_string(), u8::from(is_full).to_string());
        let done = Command::new("python3").args(["-c", script, &process, &full]).status();
        assert!(done.expect("python3 is there: ./test installs it").success());
    }

    /// As a crash would end it.
    pub(crate) fn kill_nine(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
    }

    /// Waits until it has said this, and gives all that it said.
    pub(crate) async fn says(&self, text: &str) -> String {
        let mut said = self.said.clone();
        if let Ok(Ok(said)) = timeout(DEADLINE, said.wait_for(|said| said.contains(text))).await {
            return said.clone();
        }
        panic!("{text:?}: not in time; it said {:?}", *self.said.borrow())
    }

    /// Waits until it has ended.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(self) -> Option<i32> {
        self.signal("TERM");
        self.end()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
