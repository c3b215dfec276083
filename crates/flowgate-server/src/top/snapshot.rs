//! What a server said, read.

use serde::Deserialize;
use serde_json::Value;

/// A server at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Snapshot {
    pub(super) version: String,
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) counters: Counters,
    pub(super) gates: Vec<Gate>,
    #[serde(deserialize_with = "store")]
    pub(super) store: Option<Store>,
}

/// Since the server started.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counters {
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) retried: u64,
    pub(super) failed: u64,
    pub(super) in_flight: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gate {
    pub(super) name: String,
    pub(super) in_use: u64,
    pub(super) waiting: u64,
    pub(super) max: Option<u32>,
    pub(super) refused: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) cluster: Cluster,
    pub(super) workers: Workers,
    pub(super) queues: Vec<Queue>,
    pub(super) keys: Vec<Key>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cluster {
    pub(super) in_use: u32,
    pub(super) cap: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Workers {
    pub(super) count: usize,
    pub(super) slots: u32,
    pub(super) in_use: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) in_use: u32,
    pub(super) max: Option<u32>,
    pub(super) waiting: u64,
    pub(super) delayed: u64,
    pub(super) paused: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Key {
    pub(super) key: String,
    pub(super) in_use: u32,
    pub(super) max: Option<u32>,
    pub(super) waiting: u64,
    pub(super) delayed: u64,
    pub(super) rate: Option<Rate>,
    pub(super) paused: bool,
    pub(super) pinned: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rate {
    pub(super) limit: u32,
    pub(super) remaining: u32,
}

/// A store that is away is a word.
fn store<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Store>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(if value.is_object() { serde_json::from_value(value).ok() } else { None })
}
