//! What every peer is given to do: next to nothing, or to take a while.

use serde::{Deserialize, Serialize};

/// One task: which it is, and whose.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Task {
    pub(crate) key: u32,
    pub(crate) number: u32,
}

impl Task {
    /// So many, spread over the keys, in turn.
    pub(crate) fn many(count: u32, keys: u32) -> impl Iterator<Item = Task> {
        (0..count).map(move |number| Task { key: number % keys, number })
    }

    /// The name of its key.
    pub(crate) fn key_name(self) -> String {
        key_name(self.key)
    }
}

/// The name of a key.
pub(crate) fn key_name(key: u32) -> String {
    format!("key-{key}")
}
