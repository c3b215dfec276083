//! `[worker]`: how a worker works.
//!
//! Owns the checked section. What to run is said on the command line alone.

use std::{fs, thread, time::Duration};

use flowgate_tasks::worker::WorkerOptions;

use super::{
    Queue,
    read::{Entry, Fields, Read},
};

const MOST_PROCESSES: u32 = 10_000;
const NAMES: &str =
    "a list of names, like [\"stripe\", \"email\"], or one text with the names separated by commas";

/// The section `[worker]`; it is there with its defaults even if the file has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerConfig {
    pub(crate) options: WorkerOptions,
    pub(crate) start_timeout: Duration,
}

impl WorkerConfig {
    /// The section, where these are the queues of the file; `None`: there are none, or they are wrong, which was told.
    pub(super) fn read(fields: &Fields<'_>, known: Option<&Vec<Queue>>) -> Read<Self> {
        let name = fields.optional("name", |entry| entry.words().map(str::to_owned));
        let processes = fields.optional("processes", |entry| entry.small(1..=MOST_PROCESSES));
        let queues = fields.optional("queues", |entry| queues(entry, known));
        let max_claim_batch = fields.read("max_claim_batch", |entry| entry.small(0..=MOST_PROCESSES));
        let max_claim_per_worker =
            fields.read("max_claim_per_worker", |entry| entry.small(0..=MOST_PROCESSES));
        let lease = fields.read("lease", |entry| {
            let range = Duration::from_millis(100)..=Duration::from_secs(86_400);
            entry.time_within(&range, "a time from 100ms to 1d, like \"15s\"")
        });
        let drain = fields.time("drain");
        let start_timeout = fields.time("start_timeout");
        let options = WorkerOptions {
            name: name?.unwrap_or_else(host),
            processes: processes?.unwrap_or_else(processors),
            queues: queues?.unwrap_or_default(),
            max_claim_batch: max_claim_batch?,
            max_claim_per_worker: max_claim_per_worker?,
            lease: lease?,
            drain: drain?,
            ..WorkerOptions::default()
        };
        Ok(WorkerConfig { options, start_timeout: start_timeout? })
    }
}

fn queues(entry: &Entry<'_>, known: Option<&Vec<Queue>>) -> Read<Vec<String>> {
    let is_known = |name: &str| known.is_none_or(|known| known.iter().any(|queue| queue.name == name));
    let names = |known: &[Queue]| {
        known.iter().map(|queue| format!("{:?}", queue.name)).collect::<Vec<_>>().join(", ")
    };
    let Some(text) = entry.value.as_str() else {
        return entry.list(NAMES, |entry| {
            let name = super::tasks::queue_name(entry)?;
            if is_known(&name) {
                return Ok(name);
            }
            Err(entry.wrong(format!(
                "the name of a [[queue]]: {}",
                known.map(|known| names(known)).unwrap_or_default()
            )))
        });
    };
    let mut queues: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim) {
        if name.is_empty() {
            return Err(entry.wrong(NAMES));
        }
        if !is_known(name) {
            let known = known.map(|known| names(known)).unwrap_or_default();
            return Err(
                entry.misplaced(format!("names {name:?}, which is not a [[queue]]; accepted: {known}"))
            );
        }
        if !queues.iter().any(|queue| queue == name) {
            queues.push(name.to_owned());
        }
    }
    Ok(queues)
}

fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// What this machine is called.
pub(crate) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}
