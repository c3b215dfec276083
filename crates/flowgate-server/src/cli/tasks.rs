//! The options of the commands for durable work.
//!
//! Owns their names, defaults and words. What the configuration can say as well is passed on as text, and checked there.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use flowgate_tasks::MAX_WEIGHT;

use super::{between, time, whole};
use crate::config::{LAST_PRIORITY, Sources};

/// Where the tasks are.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreOptions {
    /// The config file [default: flowgate.toml, if it is there]
    #[arg(long, env = "FLOWGATE_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,

    /// Where tasks wait: sqlite:PATH or postgres://… [env: FLOWGATE_STORE] [default: sqlite:flowgate.db]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

impl StoreOptions {
    /// The file, the environment and these options.
    pub(crate) fn sources(&self) -> Sources {
        Sources::new(self.config.clone()).flag("", "store", "--store", self.store.as_ref())
    }

    /// The store, as it was given here.
    pub(crate) fn given(&self) -> Option<&str> {
        self.store.as_deref()
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerOptions {
    #[command(flatten)]
    store: StoreOptions,

    /// How many child processes run, one task at a time each [env: FLOWGATE_WORKER_PROCESSES] [default: one for each processor]
    #[arg(long, value_name = "N")]
    processes: Option<String>,

    /// A queue to serve; may be given more than once [env: FLOWGATE_WORKER_QUEUES] [default: all]
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,

    /// How many tasks of one queue are claimed in one pass; 0: as many as there is room for [env:
    /// FLOWGATE_WORKER_MAX_CLAIM_BATCH] [default: 0]
    #[arg(long, value_name = "N")]
    max_claim_batch: Option<String>,

    /// How many tasks the worker holds at most; 0: as many as processes and prefetch_buffer together [env:
    /// FLOWGATE_WORKER_MAX_CLAIM_PER_WORKER] [default: 0]
    #[arg(long, value_name = "N")]
    max_claim_per_worker: Option<String>,

    /// How long the worker may be silent before its tasks go to other workers [env: FLOWGATE_WORKER_LEASE] [default: 15s]
    #[arg(long, value_name = "TIME")]
    lease: Option<String>,

    /// How long running tasks may go on after the worker is asked to stop [env: FLOWGATE_WORKER_DRAIN] [default: 30s]
    #[arg(long, value_name = "TIME")]
    drain: Option<String>,

    /// The worker's name, as `explain` shows it [env: FLOWGATE_WORKER_NAME] [default: the host's name]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    /// The program that runs the tasks, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl WorkerOptions {
    /// The file, the environment and these options.
    pub(crate) fn sources(&self) -> Sources {
        let queues = (!self.queue.is_empty()).then(|| self.queue.join(","));
        let texts = [
            ("name", "--name", &self.name),
            ("processes", "--processes", &self.processes),
            ("queues", "--queue", &queues),
            ("max_claim_batch", "--max-claim-batch", &self.max_claim_batch),
            ("max_claim_per_worker", "--max-claim-per-worker", &self.max_claim_per_worker),
            ("lease", "--lease", &self.lease),
            ("drain", "--drain", &self.drain),
        ];
        texts.into_iter().fold(self.store.sources(), |sources, (option, flag, text)| {
            sources.flag("worker", option, flag, text.as_ref())
        })
    }
}

/// What a worker starts, to become a child that does not outlive it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChildOptions {
    /// The process of the worker
    #[arg(long)]
    pub(crate) parent: u32,

    /// How many files it may have open, if not as many as the worker
    #[arg(long)]
    pub(crate) files: Option<u64>,

    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SendOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// Which handler runs it
    pub(crate) kind: String,

    /// The body for the handler, as JSON or any text; `-` reads standard input [default: null]
    #[arg(allow_hyphen_values = true)]
    pub(crate) body: Option<String>,

    /// Send a task for each line of standard input, with the line as its body; skips empty lines, stores 1,000 at a time
    #[arg(long, conflicts_with_all = ["body", "wait", "dedupe"])]
    pub(crate) lines: bool,

    /// The queue it waits in
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// The key whose slots and rate it shares
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// How many of its key may run at once
    #[arg(long, value_name = "N", requires = "key", value_parser = whole::<1>)]
    pub(crate) max: Option<u32>,

    /// How many of its key may start per period
    #[arg(long, value_name = "N", requires = "key", requires = "period", value_parser = whole::<1>)]
    pub(crate) rate: Option<u32>,

    /// The period of the rate
    #[arg(long, value_name = "TIME", requires = "rate", value_parser = time)]
    pub(crate) period: Option<Duration>,

    /// Spread the starts evenly, instead of counting them in windows
    #[arg(long, requires = "rate")]
    pub(crate) smooth: bool,

    /// Its priority within its queue; lower starts first
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = priority)]
    pub(crate) priority: i16,

    /// How many slots of its key it takes
    #[arg(long, value_name = "N", default_value = "1", value_parser = between::<1, MAX_WEIGHT>)]
    pub(crate) weight: u32,

    /// How long it waits before it joins the line
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) delay: Option<Duration>,

    /// How long it may wait; if it has not started by then, it never starts
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) good_until: Option<Duration>,

    /// How often it is retried after a failure
    #[arg(long, value_name = "N", default_value = "2", value_parser = between::<0, 999>)]
    pub(crate) retries: u32,

    /// The wait after the first failure; each further one is twice as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) backoff: Duration,

    /// How long it may run
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,

    /// An id: within --dedupe-window, no other task with it is stored
    #[arg(long, value_name = "ID")]
    pub(crate) dedupe: Option<String>,

    /// How long no other task with that id is stored, counted from when this one was sent
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "dedupe", value_parser = time)]
    pub(crate) dedupe_window: Duration,

    /// How long its result is kept when it is done
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) keep: Option<Duration>,

    /// Wait until the task has ended and print its result, which is kept for an hour unless --keep says otherwise
    #[arg(long)]
    pub(crate) wait: bool,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QueuesOptions {
    #[command(subcommand)]
    pub(crate) change: Option<QueueChange>,

    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueueChange {
    /// Change the caps that all workers obey, at once
    Set(SetOptions),
    /// Pause a queue: nothing more starts; tasks claimed ahead (prefetch_buffer) go back to their line
    Pause(NamedQueue),
    /// Resume a queue
    Resume(NamedQueue),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SetOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// The queue; it is created if it does not exist
    #[arg(required_unless_present = "cluster_wide_cap")]
    pub(crate) name: Option<String>,

    /// How many of its tasks may be claimed or running at once; none: any number
    #[arg(long, value_name = "N", requires = "name", value_parser = cap)]
    pub(crate) max_concurrency: Option<Cap>,

    /// Lower is served first
    #[arg(long, value_name = "N", requires = "name", value_parser = queue_priority)]
    pub(crate) priority: Option<u32>,

    /// How many tasks may be claimed or running at once in total; none: any number
    #[arg(long, value_name = "N", value_parser = cap)]
    pub(crate) cluster_wide_cap: Option<Cap>,
}

/// A cap, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap(pub(crate) Option<u32>);

fn priority(text: &str) -> Result<i16, String> {
    text.parse().map_err(|_| format!("accepted: a whole number from {} to {}", i16::MIN, i16::MAX))
}

fn queue_priority(text: &str) -> Result<u32, String> {
    let accepted = || format!("accepted: a whole number from 1 to {LAST_PRIORITY}");
    whole::<1>(text).ok().filter(|priority| *priority <= LAST_PRIORITY).ok_or_else(accepted)
}

fn cap(text: &str) -> Result<Cap, String> {
    match text {
        "none" => Ok(Cap(None)),
        _ => whole::<1>(text).map(|cap| Cap(Some(cap))).map_err(|accepted| format!("{accepted}, or none")),
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NamedQueue {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// The queue
    pub(crate) name: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TasksOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// The number of one task [default: all that run, wait or are dead]
    pub(crate) id: Option<i64>,

    /// Only those of this queue
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) queue: Option<String>,

    /// Only those of this key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["id", "queue"])]
    pub(crate) key: Option<String>,

    /// How many to show of each kind
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole::<1>)]
    pub(crate) most: u32,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TaskOptions {
    #[command(subcommand)]
    pub(crate) change: TaskChange,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TaskChange {
    /// Cancel a task: it does not start, or is stopped
    Cancel(NumberedTask),
    /// Put a failed, expired or cancelled task back into its line, as new
    Retry(NumberedTask),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NumberedTask {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// The number of the task
    pub(crate) id: i64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KeyOptions {
    #[command(subcommand)]
    pub(crate) change: KeyChange,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeyChange {
    /// Pause a key: none of its tasks start
    Pause(NamedKey),
    /// Resume a key
    Resume(NamedKey),
    /// Pin limits for a key: they override those its tasks were sent with; what is not named stays as it is
    Pin(PinOptions),
    /// Unpin a key: the limits its tasks were sent with apply again
    Unpin(NamedKey),
    /// Choose whose limits govern what waits: the newest sent, or each task's own
    Latest {
        #[command(flatten)]
        named: NamedKey,
        /// on: the newest sent; off: each task's own; default: as for all keys
        mode: Latest,
    },
}

/// Whose limits govern what waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Latest {
    On,
    Off,
    Default,
}

impl Latest {
    /// As the API calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Latest::On => "latest",
            Latest::Off => "own",
            Latest::Default => "default",
        }
    }

    /// What holds from now on.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Latest::On => "follows the newest limits sent",
            Latest::Off => "lets each follow its own limits",
            Latest::Default => "follows the rule for all keys",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NamedKey {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// The key
    pub(crate) key: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PinOptions {
    #[command(flatten)]
    pub(crate) named: NamedKey,

    /// How many may run at once
    #[arg(long, value_name = "N", required_unless_present = "rate", value_parser = whole::<1>)]
    pub(crate) max: Option<u32>,

    /// How many may start per period
    #[arg(long, value_name = "N", requires = "period", value_parser = whole::<1>)]
    pub(crate) rate: Option<u32>,

    /// The period of the rate
    #[arg(long, value_name = "TIME", requires = "rate", value_parser = time)]
    pub(crate) period: Option<Duration>,

    /// Spread the starts evenly, instead of counting them in windows
    #[arg(long, requires = "rate")]
    pub(crate) smooth: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// A task's number, a message's id, key:NAME or queue:NAME
    #[arg(value_name = "TASK|MESSAGE|key:NAME|queue:NAME")]
    pub(crate) what: String,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
