//! The caps of the configuration and those of the store.
//!
//! The store's hold: all workers obey the same. A cap that the store does not have yet is taken from the configuration.

use flowgate_tasks::{
    explain::quoted,
    store::{QueueLimits, Store, StoreError},
};

use crate::config::Config;

/// What a queue has that somebody sent to before anybody said something about it.
const UNSAID: (i32, Option<u32>) = (100, None);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Agreed {
    /// The cap over everything that holds.
    pub(crate) cluster_wide_cap: Option<u32>,
    /// Where the configuration says otherwise, a line each.
    pub(crate) notes: Vec<String>,
}

/// Writes the configuration's caps where the store has none, and tells where it has others.
pub(crate) async fn agree(store: &dyn Store, config: &Config) -> Result<Agreed, StoreError> {
    let mut notes = Vec::new();
    let wanted = config.tasks.cluster_wide_cap.map(u32::from);
    let (_, mut cap) = store.cluster().await?;
    match (cap, wanted) {
        (None, Some(_)) => {
            store.set_cluster_cap(wanted).await?;
            cap = wanted;
        }
        (Some(has), Some(says)) if has != says => notes.push(format!(
            "the store has cluster_wide_cap={has}, this configuration says {says}: the store's holds; \
             `flowgate queues set --cluster-wide-cap {says}` changes it"
        )),
        _ => {}
    }
    let known = store.queues_counted(0).await?;
    for queue in &config.queues {
        let says = (queue.priority, queue.max_concurrency.map(u32::from));
        let has = known.iter().find(|look| look.limits.name == queue.name);
        let has = has.map(|look| (look.limits.priority, look.limits.max));
        match has {
            Some(has) if has == says => {}
            None | Some(UNSAID) => {
                let limits = QueueLimits { name: queue.name.clone(), priority: says.0, max: says.1 };
                store.set_queue(limits).await?;
            }
            Some(has) => notes.push(format!(
                "the store has {} for queue `{}`, this configuration says {}: the store's holds; \
                 `flowgate queues set {} --priority {} --max-concurrency {}` changes it",
                words(has),
                queue.name,
                words(says),
                quoted(&queue.name),
                says.0,
                number(says.1)
            )),
        }
    }
    Ok(Agreed { cluster_wide_cap: cap, notes })
}

fn words((priority, max): (i32, Option<u32>)) -> String {
    format!("priority={priority}, max_concurrency={}", number(max))
}

/// A cap in words.
pub(super) fn number(cap: Option<u32>) -> String {
    cap.map_or_else(|| "none".to_owned(), |cap| cap.to_string())
}
