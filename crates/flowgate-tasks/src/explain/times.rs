//! How long work took lately, from whoever recorded it.

use std::time::Duration;

use crate::store::{Of, Reply, TaskLook};

/// How long work was held, on average, from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The mean.
    pub mean: Duration,
    /// How many were looked at.
    pub count: u32,
}

/// A record of how long work took. A store keeps none for tasks that are done; a server that logs its
/// deliveries has one.
pub trait ServiceTimes: Sync {
    /// What was done lately of a key, a queue or all. `None`: nothing is known of it.
    fn recent(&self, of: Of) -> Reply<'_, Option<Served>>;

    /// The name of this key for a command. Where names are told without their namespace, it is the name in
    /// the store.
    fn key_named(&self, key: &str) -> String {
        key.to_owned()
    }

    /// What sends a dead task on its way again.
    fn revived(&self, look: &TaskLook) -> String {
        format!("`flowgate task retry {}` sends it back to its line, as new", look.id)
    }
}

/// Nobody recorded anything.
pub(super) struct Unrecorded;

impl ServiceTimes for Unrecorded {
    fn recent(&self, _: Of) -> Reply<'_, Option<Served>> {
        Box::pin(async { Ok(None) })
    }
}
