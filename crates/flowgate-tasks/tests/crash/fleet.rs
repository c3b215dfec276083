//! Worker processes that are killed and replaced, until all their work is done.

use std::{
    any::Any,
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flowgate_core::Limits;
use flowgate_tasks::{
    Client, NewTask, Retry, TaskId,
    store::{QueueLimits, Sqlite, Store, StoreError},
    worker::{Failure, Handlers, Prefetch, Worker, WorkerOptions},
};

use super::evidence::{Death, Evidence};

const STORE: &str = "FLOWGATE_CRASH_STORE";
const FOLDER: &str = "FLOWGATE_CRASH_FOLDER";
const SLOTS: &str = "FLOWGATE_CRASH_SLOTS";
const AHEAD: &str = "FLOWGATE_CRASH_AHEAD";
const STORMY: &str = "FLOWGATE_CRASH_STORMY";

/// How long a task takes.
const TASK: Duration = Duration::from_millis(20);
/// How long a silent worker keeps its tasks, and how long one that was claimed ahead may wait. A worker that cannot renew
/// its lease stops a thirty-second part before its end, and is to get the processor by then. Leases of a process that was
/// killed are ended by hand, so nothing waits for that.
const LEASE: Duration = Duration::from_secs(20);

/// What the fleet is made of, and what holds.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) workers: usize,
    pub(super) slots: u32,
    /// 0: no task has a key.
    pub(super) keys: usize,
    pub(super) max_per_key: u32,
    /// Over everything that runs: of the cluster where caps are hard, of the queue where they are soft.
    pub(super) cap: u32,
    /// How many each worker claims ahead. 0: caps are hard. Otherwise every second task has no key.
    pub(super) ahead: u32,
    /// 0: all tasks are there at the start. Otherwise so many are, and each sends the next.
    pub(super) chains: usize,
    pub(super) tasks: usize,
    pub(super) kills: usize,
    /// What others do to the store while there is still somebody to kill.
    pub(super) storm: Option<Storm>,
}

/// Begins it; it ends with what this gives.
pub(super) type Storm = fn(&str, &Plan, u64) -> Box<dyn Any>;

pub(super) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos()
}

/// Takes this long: it is what the tasks here are for, and what spreads the kills.
async fn last(span: Duration) {
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}

/// A small generator.
pub(super) fn random(seed: &mut u64, below: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % below
}

async fn try_open(store: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match store.strip_prefix("sqlite:") {
        Some(path) => Arc::new(Sqlite::open(Path::new(path))?),
        #[cfg(feature = "postgres")]
        None => Arc::new(flowgate_tasks::store::Postgres::connect(store).await?),
        #[cfg(not(feature = "postgres"))]
        None => panic!("{store} needs the feature `postgres`"),
    })
}

async fn open(store: &str) -> Arc<dyn Store> {
    try_open(store).await.expect("a store")
}

/// Whether nothing is left to do.
async fn is_done(store: &str) -> Result<bool, StoreError> {
    let queues = try_open(store).await?.queues().await?;
    Ok(queues.iter().all(|queue| queue.waiting + queue.delayed + u64::from(queue.in_use) == 0))
}

/// What a process had that is gone is others' at once.
fn end_leases(store: &str, process: u32) {
    let end = format!("UPDATE workers SET lease_until = 0 WHERE name = '{process}'");
    match store.strip_prefix("sqlite:") {
        Some(path) => {
            let db = rusqlite::Connection::open(path).expect("the file");
            db.busy_timeout(Duration::from_secs(60)).expect("patience");
            db.execute_batch(&end).expect("its leases end");
        }
        #[cfg(feature = "postgres")]
        // A storm may end this connection, too.
        None => while super::storm::by_hand(store, &end).is_err() {},
        #[cfg(not(feature = "postgres"))]
        None => panic!("{store} needs the feature `postgres`"),
    }
}

/// Tasks that are lost are tried again, and again.
fn patient(task: NewTask) -> NewTask {
    task.retry(Retry { max_attempts: 1000, ..Retry::default() })
}

/// A task that sends the next one, while there are any left.
fn link(chain: usize, left: usize, plan: (usize, u32)) -> NewTask {
    let (keys, max_per_key) = plan;
    let limits = Limits::builder().max(max_per_key).build().expect("limits");
    let task = NewTask::json("link", &(chain, left, plan)).expect("numbers");
    let id = format!("{chain}-{left}");
    patient(task.key(format!("key-{}", chain % keys)).limits(limits).dedupe(id, Duration::from_secs(3600)))
}

/// A run that writes down how long it lasted: to its end, or until it was stopped.
struct Run {
    log: Arc<File>,
    task: TaskId,
    key: usize,
    is_ended: bool,
}

impl Run {
    fn start(log: &Arc<File>, task: TaskId, key: usize) -> Self {
        let run = Run { log: Arc::clone(log), task, key, is_ended: false };
        run.say("start");
        run
    }

    fn end(mut self) {
        self.say("end");
        self.is_ended = true;
    }

    fn say(&self, what: &str) {
        let line = format!("{what} {} {} {}\n", self.task, self.key, now());
        (&*self.log).write_all(line.as_bytes()).expect("a line in the log");
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.is_ended {
            self.say("stop");
        }
    }
}

/// A worker process, until it is killed.
pub(super) fn work_if_told() {
    let (Ok(store), Ok(folder)) = (std::env::var(STORE), std::env::var(FOLDER)) else { return };
    let slots: u32 = std::env::var(SLOTS).expect("told").parse().expect("a number");
    let is_stormy = std::env::var(STORMY).is_ok();
    let path = Path::new(&folder).join(format!("{}.log", std::process::id()));
    let log = Arc::new(OpenOptions::new().create(true).append(true).open(path).expect("a log"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        let store = loop {
            match try_open(&store).await {
                Ok(store) => break store,
                Err(error) => assert!(is_stormy, "a store: {error}"),
            }
        };
        let (client, links) = (Client::new(Arc::clone(&store)), Arc::clone(&log));
        let handlers = Handlers::new().on_with("work", move |context, key: usize| {
            let run = Run::start(&log, context.id, key);
            async move {
                last(TASK).await;
                run.end();
                Ok::<_, Failure>(())
            }
        });
        type Link = (usize, usize, (usize, u32));
        let handlers = handlers.on_with("link", move |context, (chain, left, plan): Link| {
            let (run, client) = (Run::start(&links, context.id, chain % plan.0), client.clone());
            async move {
                last(TASK).await;
                if left > 0 {
                    client.send(link(chain, left - 1, plan)).await.map_err(Failure::new)?;
                }
                run.end();
                Ok::<_, Failure>(())
            }
        });
        let buffer: u32 = std::env::var(AHEAD).expect("told").parse().expect("a number");
        let prefetch = (buffer > 0).then_some(Prefetch { buffer, lease: LEASE });
        let name = std::process::id().to_string();
        let options =
            WorkerOptions { name, processes: slots, lease: LEASE, prefetch, ..WorkerOptions::default() };
        let worker = Worker::new(store, handlers, options).expect("valid options");
        worker.run(std::future::pending()).await.expect("a store that answers");
    });
}

/// The processes, and what is done to them.
pub(super) struct Fleet {
    plan: Plan,
    store: String,
    folder: PathBuf,
    processes: Vec<Child>,
    deaths: Vec<Death>,
    /// What is killed when need not be the same each time, only spread.
    seed: u64,
}

impl Fleet {
    pub(super) fn start(store: &str, plan: &Plan) -> Self {
        let folder = std::env::temp_dir().join(format!("flowgate-fleet-{}-{}", std::process::id(), now()));
        std::fs::create_dir_all(&folder).expect("a folder for the logs");
        let seed = now() as u64 | 1;
        let fleet = Fleet {
            plan: plan.clone(),
            store: store.to_owned(),
            folder,
            processes: Vec::new(),
            deaths: Vec::new(),
            seed,
        };
        fleet.block_on(async {
            let store = open(&fleet.store).await;
            if plan.ahead == 0 {
                store.set_cluster_cap(Some(plan.cap)).await.expect("a cap");
            } else {
                let queue = QueueLimits { name: "default".to_owned(), priority: 1, max: Some(plan.cap) };
                store.set_queue(queue).await.expect("a queue");
            }
            let limits = Limits::builder().max(plan.max_per_key).build().expect("limits");
            let task = |number: usize| {
                if let Some(links) = plan.tasks.checked_div(plan.chains) {
                    return link(number, links - 1, (plan.keys, plan.max_per_key));
                }
                if plan.keys == 0 || plan.ahead > 0 && number.is_multiple_of(2) {
                    return patient(NewTask::json("work", &plan.keys).expect("a number"));
                }
                let key = number % plan.keys;
                let task = NewTask::json("work", &key).expect("a number");
                patient(task.key(format!("key-{key}")).limits(limits))
            };
            let count = if plan.chains > 0 { plan.chains } else { plan.tasks };
            store.send((0..count).map(task).collect()).await.expect("stored");
        });
        fleet
    }

    /// Kills one process after another, and goes on until nothing is left to do.
    pub(super) fn kill_until_done(mut self) -> Evidence {
        while self.processes.len() < self.plan.workers {
            self.add();
        }
        let mut storm = self.plan.storm.map(|start| start(&self.store, &self.plan, self.seed));
        let mut is_over = false;
        while self.deaths.len() < self.plan.kills || !is_over {
            let pause = Duration::from_millis(20 + self.random(120));
            let said = self.block_on(async {
                last(pause).await;
                is_done(&self.store).await
            });
            is_over = match storm {
                None => said.expect("queues"),
                // It may be that nobody can say.
                Some(_) => said.unwrap_or(false),
            };
            if self.deaths.len() < self.plan.kills {
                let victim = self.random(self.processes.len() as u64) as usize;
                self.kill(victim);
                self.add();
            } else {
                storm.take();
            }
        }
        while !self.processes.is_empty() {
            self.kill(0);
        }
        let audit = self.block_on(async {
            let store = open(&self.store).await;
            let dead = store.dead(None, 10).await.expect("the dead list");
            assert!(dead.is_empty(), "no task may be given up: {dead:?}");
            let mut audit = store.audit().await.expect("an audit");
            // The last workers were killed when nothing was left, so nothing is held any more.
            audit.sort();
            audit
        });
        assert_eq!(audit, Vec::<String>::new());
        let evidence = Evidence::read(&self.folder, &self.deaths, &self.plan);
        std::fs::remove_dir_all(&self.folder).expect("the logs go");
        evidence
    }

    fn add(&mut self) {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        if self.plan.storm.is_some() {
            command.env(STORMY, "yes");
        }
        let process = command
            .args(["--exact", "the_worker_process", "--nocapture"])
            .env(STORE, &self.store)
            .env(FOLDER, &self.folder)
            .env(SLOTS, self.plan.slots.to_string())
            .env(AHEAD, self.plan.ahead.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.processes.push(process.expect("a worker process"));
    }

    fn kill(&mut self, index: usize) {
        let mut process = self.processes.remove(index);
        process.kill().expect("SIGKILL");
        process.wait().expect("it is gone");
        self.deaths.push(Death { process: process.id(), at: now() });
        end_leases(&self.store, process.id());
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work)
    }

    fn random(&mut self, below: u64) -> u64 {
        random(&mut self.seed, below)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
