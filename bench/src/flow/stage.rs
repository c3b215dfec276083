//! Where the suite plays: the server on a fresh store, the endpoint, and BullMQ on a Redis of its own.
//!
//! Owns that nothing stays behind, and that a run comes to an end.

use std::{
    cell::{Cell, OnceCell},
    env, fs,
    net::SocketAddr,
    path::PathBuf,
    process,
    time::{Duration, Instant},
};

use flowgate_testkit::postgres::{Options, Postgres};
use tokio::runtime::Runtime;

use super::{
    client::{Ask, Connection},
    endpoint::Endpoint,
};
use crate::{
    http::{
        process::{Process, free_port},
        stage::{build, leave_on_signal},
    },
    suite::Suite,
    tasks::{running::Running, stage as tasks},
};

/// Nothing that is waited for takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Where the server keeps its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Sqlite,
    Postgres,
}

/// What all cases share.
pub(crate) struct Stage {
    folder: PathBuf,
    runtime: Runtime,
    pub(super) endpoint: Endpoint,
    flowgate: PathBuf,
    postgres: OnceCell<Postgres>,
    redis: OnceCell<Process>,
    node: OnceCell<Vec<PathBuf>>,
    stores: Cell<u32>,
}

/// A server at work, on a store that was empty.
pub(super) struct Server<'a> {
    pub(super) stage: &'a Stage,
    pub(super) process: Process,
}

impl Stage {
    pub(crate) fn set(_: &Suite) -> Result<Self, String> {
        let folder = env::temp_dir().join(format!("flowgate-bench-{}", process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        leave_on_signal(folder.clone());
        Ok(Stage {
            folder,
            runtime: Runtime::new().map_err(|error| format!("no runtime: {error}"))?,
            endpoint: Endpoint::start()?,
            flowgate: build()?,
            postgres: OnceCell::new(),
            redis: OnceCell::new(),
            node: OnceCell::new(),
            stores: Cell::new(0),
        })
    }

    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// `flowgate serve` on an empty store.
    pub(super) fn server(&self, store: Store) -> Result<Server<'_>, String> {
        self.stores.set(self.stores.get() + 1);
        let store = match store {
            Store::Sqlite => {
                let file = self.folder.join(format!("flow-{}.db", self.stores.get()));
                format!("sqlite:{}", file.display())
            }
            Store::Postgres => {
                let postgres = self.postgres()?;
                postgres.create_database("flow").map_err(|error| error.to_string())?
            }
        };
        let port = free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let words = ["serve", "--dev", "--listen", &listen, "--store", &store].map(str::to_owned);
        let process = Process::start("flowgate", &self.flowgate, &words, port, &self.folder)?;
        Ok(Server { stage: self, process })
    }

    fn postgres(&self) -> Result<&Postgres, String> {
        if self.postgres.get().is_none() {
            let options = Options::durable()
                .shared_buffers(256.try_into().expect("256 is not 0"))
                .setting("max_wal_size", "8GB")
                .setting("checkpoint_timeout", "1h");
            let started = Postgres::start(options).map_err(|error| error.to_string())?;
            return Ok(self.postgres.get_or_init(|| started));
        }
        self.postgres.get().ok_or_else(|| "no PostgreSQL".to_owned())
    }

    /// How many seconds BullMQ takes from the first of so many to the last, with a worker that fetches the endpoint.
    pub(super) fn bullmq(&self, count: u32) -> Result<f64, String> {
        if self.node.get().is_none() {
            let _ = self.node.set(tasks::node()?);
        }
        if self.redis.get().is_none() {
            let _ = self.redis.set(tasks::redis(&self.folder)?);
        }
        let (node, redis) = self.node.get().zip(self.redis.get()).ok_or("no peer")?;
        tasks::flush(redis).map_err(|error| format!("redis: {error}"))?;
        let database = format!("redis://127.0.0.1:{}", redis.port());
        let (count, url) = (count.to_string(), self.endpoint.url());
        let words =
            ["bullmq", "flow", "--database", &database, "--count", &count, "--keys", "10", "--url", &url];
        let words: Vec<String> = words.map(str::to_owned).to_vec();
        let lines =
            Running::start(node, &words, self.folder.join("bullmq.log"))?.rest(Instant::now() + PATIENCE)?;
        let seconds = lines.iter().rev().find_map(|line| line.get("seconds")?.as_f64());
        seconds.ok_or_else(|| "bullmq told no time".to_owned())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.redis.take();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Server<'_> {
    pub(super) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// Waits until the endpoint has seen so many, and the server has settled all it had under way.
    pub(super) async fn settled(&self, count: u64) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let mut connection = Connection::open(self.address()).await?;
        loop {
            let seen = self.stage.endpoint.count();
            if seen >= count {
                let told = connection.json(&Ask::get("/v2/globalParallelism")).await?;
                if told["parallelismCount"] == 0 {
                    return Ok(());
                }
            }
            if Instant::now() > end {
                return Err(format!("{seen} of {count} were delivered in time"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
