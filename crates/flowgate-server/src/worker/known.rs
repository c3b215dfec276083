//! Which queues there are.

use flowgate_tasks::{DEFAULT_QUEUE, store::Store};

use crate::{commands::Failure, config::Config};

/// Fails for a queue that neither the configuration nor the store has.
pub(crate) async fn queue(store: &dyn Store, config: &Config, name: &str) -> Result<(), Failure> {
    let mut known: Vec<String> = config.queues.iter().map(|queue| queue.name.clone()).collect();
    if known.is_empty() {
        known.push(DEFAULT_QUEUE.to_owned());
    }
    if known.iter().any(|queue| queue == name) {
        return Ok(());
    }
    for look in store.queues().await? {
        if look.limits.name == name {
            return Ok(());
        }
        if !known.contains(&look.limits.name) {
            known.push(look.limits.name);
        }
    }
    Err(Failure::UnknownQueue { name: name.to_owned(), known })
}
