//! What a configuration comes to for durable work.

use flowgate_tasks::worker::WorkerOptions;
use serde::Serialize;

use super::effective::{Effective, time};
use crate::config::{Queue, QueueMode, Tasks};

#[derive(Debug, Serialize)]
pub(super) struct EffectiveTasks {
    queue_mode: &'static str,
    cluster_wide_cap: Option<u32>,
    prefetch_buffer: u32,
    claim_lease_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveQueue {
    name: String,
    priority: i32,
    max_concurrency: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveWorker {
    name: String,
    processes: u32,
    /// Empty: all.
    queues: Vec<String>,
    max_claim_batch: u32,
    max_claim_per_worker: u32,
    lease: String,
    drain: String,
}

impl EffectiveTasks {
    pub(super) fn of(tasks: &Tasks) -> Self {
        EffectiveTasks {
            queue_mode: match tasks.queue_mode {
                QueueMode::Default => "default",
                QueueMode::Custom => "custom",
            },
            cluster_wide_cap: tasks.cluster_wide_cap.map(u32::from),
            prefetch_buffer: tasks.prefetch.map_or(0, |prefetch| prefetch.buffer.get()),
            claim_lease_ms: tasks.prefetch.map(|prefetch| prefetch.lease.as_millis() as u64),
        }
    }
}

impl EffectiveQueue {
    pub(super) fn of(queue: &Queue) -> Self {
        let Queue { name, priority, max_concurrency } = queue;
        EffectiveQueue {
            name: name.clone(),
            priority: *priority,
            max_concurrency: max_concurrency.map(u32::from),
        }
    }
}

impl EffectiveWorker {
    pub(super) fn of(options: &WorkerOptions) -> Self {
        EffectiveWorker {
            name: options.name.clone(),
            processes: options.processes,
            queues: options.queues.clone(),
            max_claim_batch: options.max_claim_batch,
            max_claim_per_worker: options.max_claim_per_worker,
            lease: time(options.lease),
            drain: time(options.drain),
        }
    }
}

/// The lines for store, tasks and worker.
pub(super) fn of_work(effective: &Effective) -> String {
    let Effective { store, tasks, queues, worker, .. } = effective;
    let none = |cap: Option<u32>| cap.map_or_else(|| "none".to_owned(), |cap| cap.to_string());
    let ahead = match tasks.claim_lease_ms {
        None => "hard caps".to_owned(),
        Some(lease) => format!("soft caps: up to {} claimed ahead for {lease} ms", tasks.prefetch_buffer),
    };
    let mut text = format!(
        "store    {store}\ntasks    queue mode {}, cluster_wide_cap {}, {ahead}\n",
        tasks.queue_mode,
        none(tasks.cluster_wide_cap)
    );
    let EffectiveWorker { processes, lease, drain, .. } = worker;
    let served = if worker.queues.is_empty() { "all queues".to_owned() } else { worker.queues.join(", ") };
    text += &format!("worker   {processes} processes for {served}, lease {lease}, drain {drain}\n");
    for EffectiveQueue { name, priority, max_concurrency } in queues {
        text +=
            &format!("queue    {name}: priority {priority}, max_concurrency {}\n", none(*max_concurrency));
    }
    text
}
