//! Ours alone, in this process: a store with nothing in it, limits that are counted and hold nobody back, and tasks.
//!
//! What has no peer to stand beside is measured here, on both stores alike.

use std::{fs, path::Path, sync::Arc, time::Duration};

use flowgate_core::Limits;
use flowgate_tasks::{
    NewTask,
    store::{Postgres, QueueLimits, Sqlite, Store, StoreError},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use super::stage::Stage;

/// Both stores, as cases call them.
pub(super) const STORES: [Kind; 2] = [Kind::Sqlite, Kind::Postgres];

/// Wide enough that none of them is what anybody waits for.
const CLUSTER: u32 = 2_000;
const QUEUE: u32 = 1_500;
const KEY: u32 = 1_000;
/// How many tasks are sent in one call, and by how many at once.
const BATCH: u32 = 1_000;
const SENDERS: u32 = 4;

/// Where tasks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

/// A store of ours, until the end of its cases.
pub(super) struct Own<'a> {
    stage: &'a Stage,
    /// The database to throw away, if it is not a file.
    url: Option<String>,
    pub(super) store: Arc<dyn Store>,
    runtime: Runtime,
    limits: Limits,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "SQLite",
            Kind::Postgres => "PostgreSQL",
        }
    }
}

impl<'a> Own<'a> {
    /// An empty store. With limits: a cap for the cluster, for the queue and for each key.
    pub(super) fn open(stage: &'a Stage, kind: Kind) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
        let failed = |error: StoreError| error.to_string();
        let (url, store): (_, Arc<dyn Store>) = match kind {
            Kind::Sqlite => {
                let _inside = runtime.enter();
                (None, Arc::new(Sqlite::open(stage.new_file()).map_err(failed)?))
            }
            Kind::Postgres => {
                let url = stage.new_database()?;
                let store = runtime.block_on(Postgres::connect(&url)).map_err(failed)?;
                (Some(url), Arc::new(store))
            }
        };
        let limits = Limits::builder().max(KEY).build().map_err(|error| error.to_string())?;
        let queue = QueueLimits { name: "default".to_owned(), priority: 1, max: Some(QUEUE) };
        runtime.block_on(async {
            store.set_cluster_cap(Some(CLUSTER)).await.map_err(failed)?;
            store.set_queue(queue).await.map_err(failed)
        })?;
        Ok(Own { stage, url, store, runtime, limits })
    }

    /// The URL of the database, where there is one.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub(super) fn run<T>(&self, job: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
        self.runtime.block_on(job).map_err(|error| error.to_string())
    }

    /// A task of a key.
    pub(super) fn task(&self, kind: &str, key: u32) -> NewTask {
        task(self.limits, kind, key)
    }

    /// Sends so many over so many keys, in turn.
    pub(super) fn fill(&self, kind: &'static str, count: u32, keys: u32) -> Result<(), String> {
        let mut senders: JoinSet<Result<(), StoreError>> = JoinSet::new();
        for sender in 0..SENDERS {
            let (store, limits) = (Arc::clone(&self.store), self.limits);
            senders.spawn_on(
                async move {
                    let mut from = sender * BATCH;
                    while from < count {
                        let numbers = from..(from + BATCH).min(count);
                        store.send(numbers.map(|number| task(limits, kind, number % keys)).collect()).await?;
                        from += SENDERS * BATCH;
                    }
                    Ok(())
                },
                self.runtime.handle(),
            );
        }
        self.run(async {
            while let Some(ended) = senders.join_next().await {
                ended.expect("a sender does not panic")?;
            }
            Ok(())
        })
    }

    /// How many are not over yet.
    pub(super) async fn unfinished(&self) -> Result<u64, StoreError> {
        let queues = self.store.queues().await?;
        Ok(queues.iter().map(|queue| queue.waiting + queue.delayed + u64::from(queue.in_use)).sum())
    }
}

fn task(limits: Limits, kind: &str, key: u32) -> NewTask {
    NewTask::json(kind, &key).expect("a number is JSON").key(format!("key-{key}")).limits(limits)
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        if let Some(url) = &self.url {
            let _ = self.stage.drop_database(url);
        }
    }
}

/// The processor time of this process's threads whose names begin so, to the nanosecond. What threads used that have ended is
/// not in it.
pub(super) fn processor_time(name: &str) -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let is_named =
        |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(name));
    let named = threads.map(|thread| thread.path()).filter(|path| is_named(path));
    let told = named.filter_map(|path| fs::read_to_string(path.join("schedstat")).ok());
    let nanoseconds = told.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    Duration::from_nanos(nanoseconds.sum())
}
