//! Which queues there are.

use flowgate_tasks::{DEFAULT_QUEUE, SERVER_QUEUE, store::Store};

use crate::{commands::Failure, config::Config};

/// Fails for a queue that neither the configuration nor the store has, and for the one whose tasks are a server's.
pub(crate) async fn queue(store: &dyn Store, config: &Config, name: &str) -> Result<(), Failure> {
    if name == SERVER_QUEUE {
        let why = "that queue belongs to `flowgate serve`, which delivers its messages; name another one"
            .to_owned();
        return Err(Failure::Clash { option: "the queue", value: name.to_owned(), why });
    }
    let mut known: Vec<String> = config.queues.iter().map(|queue| queue.name.clone()).collect();
    if known.is_empty() {
        known.push(DEFAULT_QUEUE.to_owned());
    }
    if known.iter().any(|queue| queue == name) {
        return Ok(());
    }
    for look in store.queues_counted(0).await? {
        if look.limits.name == name {
            return Ok(());
        }
        if look.limits.name != SERVER_QUEUE && !known.contains(&look.limits.name) {
            known.push(look.limits.name);
        }
    }
    Err(Failure::UnknownQueue { name: name.to_owned(), known })
}
