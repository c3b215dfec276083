//! The caps at their three levels: the cluster, each queue, each worker; and the FIFO queues of the API.

use axum::extract::State;
use flowgate_tasks::store::{QueueLimits, QueueLook};
use serde::Deserialize;
use serde_json::{Value, json};

use super::router::Console;
use crate::{
    api::{Answer, Path, Problem, Sent, done, ok},
    clock,
    metrics::MOST_OF_A_LINE,
    office::{Queue, queue_key},
};

const FORM: &str = r#"send {"max": 5 or null, "paused": false}, or one of them"#;
/// So many FIFO queues are shown.
const MOST: usize = 500;

/// A change: what is not there stays as it is; `max` may be `null`, for no cap.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(default, deserialize_with = "given")]
    max: Option<Option<u32>>,
    #[serde(default)]
    paused: Option<bool>,
}

fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::<u32>::deserialize(deserializer).map(Some)
}

pub(super) async fn list(State(console): State<Console>) -> Answer {
    let store = &console.desk.store;
    let (in_use, cap) = store.cluster().await?;
    let queues: Vec<Value> = store.queues_counted(MOST_OF_A_LINE).await?.iter().map(queue).collect();
    let workers: Vec<Value> = store
        .workers()
        .await?
        .iter()
        .map(|worker| {
            json!({
                "id": worker.id.0,
                "name": worker.name,
                "slots": worker.slots,
                "inUse": worker.in_use,
                "ahead": worker.ahead,
                "queues": worker.queues,
                "leaseLeftMs": worker.lease_left.as_millis() as u64,
            })
        })
        .collect();
    let mut fifo = Vec::new();
    let mut known = Queue::all(&**store).await?;
    let count = known.len();
    known.truncate(MOST);
    let names = known.iter().map(|queue| queue_key(&queue.name)).collect();
    let looks = store.keys_named(names).await?;
    for queue in known {
        let key = queue_key(&queue.name);
        let look = looks.iter().find(|look| look.key.key == key).map(|look| &look.key);
        fifo.push(json!({
            "name": queue.name,
            "parallelism": queue.parallelism,
            "paused": queue.paused,
            "createdAt": queue.created,
            "inUse": look.map_or(0, |look| look.in_use),
            "waiting": look.map_or(0, |look| look.waiting),
            "delayed": look.map_or(0, |look| look.delayed),
        }));
    }
    ok(json!({
        "at": clock::now(),
        "cluster": { "inUse": in_use, "cap": cap },
        "queues": queues,
        "workers": workers,
        "fifo": fifo,
        "fifoCount": count,
    }))
}

fn queue(look: &QueueLook) -> Value {
    json!({
        "name": look.limits.name,
        "priority": look.limits.priority,
        "max": look.limits.max,
        "inUse": look.in_use,
        "waiting": look.waiting,
        "delayed": look.delayed,
        "isPaused": look.is_paused,
        "isMore": look.waiting + look.delayed >= u64::from(MOST_OF_A_LINE),
    })
}

/// `POST /console/data/queues/{name}`: another cap, a pause, its end.
pub(super) async fn change(State(console): State<Console>, Path(name): Path<String>, sent: Sent) -> Answer {
    let change = read(&sent)?;
    let store = &console.desk.store;
    let queues = store.queues_counted(0).await?;
    let known = queues.into_iter().find(|queue| queue.limits.name == name);
    let known = known.ok_or_else(|| Problem::missing("queue", &name))?;
    if let Some(max) = change.max {
        store.set_queue(QueueLimits { max, ..known.limits }).await?;
    }
    if let Some(is_paused) = change.paused {
        store.pause_queue(name, is_paused).await?;
    }
    done()
}

/// `POST /console/data/cluster`: another cap.
pub(super) async fn change_cluster(State(console): State<Console>, sent: Sent) -> Answer {
    let change = read(&sent)?;
    if let Some(cap) = change.max {
        console.desk.store.set_cluster_cap(cap).await?;
    }
    done()
}

fn read(sent: &Sent) -> Result<Change, Problem> {
    let change: Change = sent.object(FORM)?;
    match change.max {
        Some(Some(max)) if !(1..=1_000_000_000).contains(&max) => {
            Err(Problem::bad(format!("max is {max}; send 1 to 1000000000, or null for no cap")))
        }
        _ => Ok(change),
    }
}
