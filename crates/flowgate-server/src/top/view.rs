//! What the server tells at `/top`.
//!
//! Owns its JSON. All who watch share one look, made at most once a second; of the keys the busiest are told,
//! however many there are.

use std::{sync::Arc, time::Duration};

use flowgate::gate::Look;
use flowgate_core::Limits;
use flowgate_tasks::store::{KeySpent, QueueLook, StoreError};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    clock::{self, Stopwatch},
    gateway::Handle,
    metrics::MOST_OF_A_LINE,
    office::Desk,
};

/// So many keys are told.
const MOST_KEYS: u32 = 200;
const MOST_QUEUES: usize = 100;
const FRESH: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at a server for all who watch it.
#[derive(Clone)]
pub(super) struct Viewer {
    desk: Desk,
    gateway: Option<Handle>,
    last: Arc<Mutex<Option<(Stopwatch, Value)>>>,
}

impl Viewer {
    pub(super) fn new(desk: Desk, gateway: Option<Handle>) -> Self {
        Viewer { desk, gateway, last: Arc::default() }
    }

    /// The server, a second ago at most.
    ///
    /// Cancel safety: dropped, the next who asks looks anew.
    pub(super) async fn view(&self) -> Value {
        let mut last = self.last.lock().await;
        if let Some((asked, view)) = &*last
            && asked.elapsed() < FRESH
        {
            return view.clone();
        }
        let asked = Stopwatch::start();
        let view = self.look().await;
        *last = Some((asked, view.clone()));
        view
    }

    async fn look(&self) -> Value {
        let mut gates = Vec::new();
        gates.extend(self.desk.meter.gates().map(|(name, look)| gate(name, &look)));
        if let Some(gateway) = &self.gateway {
            let look = gateway.look().await;
            gates.extend(look.routes.iter().map(|(name, look)| gate(&format!("gateway/{name}"), look)));
        }
        let mut view = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "at": clock::now(),
            "counters": self.desk.meter.counts(),
            "gates": gates,
            "store": "away",
        });
        if let Ok(Ok(store)) = timeout(PATIENCE, self.look_at_store()).await {
            view["store"] = store;
        }
        view
    }

    async fn look_at_store(&self) -> Result<Value, StoreError> {
        let store = &self.desk.store;
        let (cluster, queues, workers, keys) = tokio::try_join!(
            store.cluster(),
            store.queues_counted(MOST_OF_A_LINE),
            store.workers(),
            store.busiest_keys(MOST_KEYS)
        )?;
        // Those that are idle since a moment ago come last, as far as there is room.
        let mut recent = self.desk.recent_keys();
        recent.retain(|spent| !keys.iter().any(|known| known.key.key == spent.key.key));
        recent.truncate((MOST_KEYS as usize).saturating_sub(keys.len()));
        let slots: u32 = workers.iter().map(|worker| worker.slots).sum();
        let in_use: u32 = workers.iter().map(|worker| worker.in_use).sum();
        Ok(json!({
            "cluster": { "in_use": cluster.0, "cap": cluster.1 },
            "workers": { "count": workers.len(), "slots": slots, "in_use": in_use },
            "queues": queues.iter().take(MOST_QUEUES).map(queue).collect::<Vec<_>>(),
            "keys": keys.iter().chain(&recent).map(key).collect::<Vec<_>>(),
        }))
    }
}

fn gate(name: &str, look: &Look) -> Value {
    json!({
        "name": name,
        "in_use": look.in_use,
        "waiting": look.waiting,
        "max": look.limits.max(),
        "refused": look.refusals.total(),
    })
}

fn queue(queue: &QueueLook) -> Value {
    json!({
        "name": queue.limits.name,
        "in_use": queue.in_use,
        "max": queue.limits.max,
        "waiting": queue.waiting,
        "delayed": queue.delayed,
        "paused": queue.is_paused,
    })
}

fn key(spent: &KeySpent) -> Value {
    let key = &spent.key;
    let max = key.pinned.as_ref().and_then(Limits::max).or(key.sent.as_ref().and_then(Limits::max));
    json!({
        "key": key.key,
        "in_use": key.in_use,
        "max": max,
        "waiting": key.waiting,
        "delayed": key.delayed,
        "rate": spent.rate.map(|rate| json!({ "limit": rate.limit, "remaining": rate.remaining })),
        "paused": key.is_paused,
        "pinned": key.pinned.is_some(),
    })
}
