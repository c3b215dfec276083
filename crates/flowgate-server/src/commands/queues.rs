//! `flowgate queues`: what runs, what waits and which caps hold; and changing them.

use flowgate_tasks::store::{QueueLimits, Store};
use serde_json::json;

use super::{
    failure::Failure,
    store::{print, print_json, with_known},
    table::Table,
};
use crate::cli::{NamedQueue, QueueChange, QueuesOptions, SetOptions, StoreOptions};

/// The priority of a queue about which nobody said anything.
const UNSAID: i32 = 100;

/// Shows the queues, or changes one of them.
pub(crate) fn queues(options: QueuesOptions) -> Result<(), Failure> {
    match options.change {
        None => show(&options.store, options.json),
        Some(QueueChange::Set(set)) => change(&set),
        Some(QueueChange::Pause(queue)) => pause(queue, true),
        Some(QueueChange::Resume(queue)) => pause(queue, false),
    }
}

fn show(options: &StoreOptions, as_json: bool) -> Result<(), Failure> {
    with_known(options, async |store, _| {
        let (in_use, cap) = store.cluster().await?;
        let queues = store.queues().await?;
        let workers = store.workers().await?;
        if as_json {
            let queues = queues.iter().map(|look| {
                json!({
                    "name": look.limits.name, "priority": look.limits.priority, "max_concurrency": look.limits.max,
                    "in_use": look.in_use, "waiting": look.waiting, "delayed": look.delayed, "paused": look.is_paused,
                })
            });
            let workers = workers.iter().map(|worker| {
                json!({
                    "id": worker.id.0, "name": worker.name, "slots": worker.slots, "in_use": worker.in_use,
                    "queues": worker.queues,
                })
            });
            let all = json!({
                "cluster": { "in_use": in_use, "cluster_wide_cap": cap },
                "queues": queues.collect::<Vec<_>>(),
                "workers": workers.collect::<Vec<_>>(),
            });
            return print_json(&all);
        }
        let mut table = Table::new(&["queue", "priority", "in use", "max", "waiting", "delayed", ""]);
        for look in &queues {
            table.row(vec![
                look.limits.name.clone(),
                look.limits.priority.to_string(),
                look.in_use.to_string(),
                number(look.limits.max),
                look.waiting.to_string(),
                look.delayed.to_string(),
                if look.is_paused { "paused" } else { "" }.to_owned(),
            ]);
        }
        let waiting: u64 = queues.iter().map(|look| look.waiting).sum();
        let delayed: u64 = queues.iter().map(|look| look.delayed).sum();
        let all = [in_use.to_string(), number(cap), waiting.to_string(), delayed.to_string()];
        table.row(["the cluster".to_owned(), String::new()].into_iter().chain(all).collect());
        let mut text = table.text();
        if !workers.is_empty() {
            let mut table = Table::new(&["worker", "name", "in use", "slots", "queues"]);
            for worker in &workers {
                let queues =
                    if worker.queues.is_empty() { "all".to_owned() } else { worker.queues.join(", ") };
                let counts = [worker.in_use.to_string(), worker.slots.to_string(), queues];
                table.row([worker.id.to_string(), worker.name.clone()].into_iter().chain(counts).collect());
            }
            text += &format!("\n{}", table.text());
        }
        print(&text)
    })
}

fn number(cap: Option<u32>) -> String {
    cap.map_or_else(|| "-".to_owned(), |cap| cap.to_string())
}

fn change(options: &SetOptions) -> Result<(), Failure> {
    with_known(&options.store, async |store, _| {
        if let Some(cap) = options.cluster_wide_cap {
            store.set_cluster_cap(cap.0).await?;
            let cap = cap.0.map_or_else(|| "none".to_owned(), |cap| cap.to_string());
            print(&format!("cluster_wide_cap={cap}, from now on\n"))?;
        }
        match &options.name {
            Some(name) => change_one(store.as_ref(), name, options).await,
            None => Ok(()),
        }
    })
}

async fn change_one(store: &dyn Store, name: &str, options: &SetOptions) -> Result<(), Failure> {
    let known = store.queues_counted(0).await?.into_iter().find(|look| look.limits.name == name);
    let unsaid = || QueueLimits { name: name.to_owned(), priority: UNSAID, max: None };
    let mut limits = known.map_or_else(unsaid, |look| look.limits);
    if let Some(max) = options.max_concurrency {
        limits.max = max.0;
    }
    if let Some(priority) = options.priority {
        limits.priority = priority.cast_signed();
    }
    store.set_queue(limits.clone()).await?;
    let max = limits.max.map_or_else(|| "none".to_owned(), |max| max.to_string());
    print(&format!("queue `{name}`: priority={}, max_concurrency={max}, from now on\n", limits.priority))
}

fn pause(options: NamedQueue, is_paused: bool) -> Result<(), Failure> {
    let NamedQueue { store, name } = options;
    with_known(&store, async move |store, _| {
        if !store.pause_queue(name.clone(), is_paused).await? {
            return Err(Failure::Unknown(format!("queue `{name}`")));
        }
        print(&format!("queue `{name}` {}\n", if is_paused { "is paused" } else { "is resumed" }))
    })
}
