//! The keys with the most to do, for the first page of the list of keys.
//!
//! Owns one look for all pages. To find the busiest, everything that waits is counted once; so the look is
//! kept for a while, and for longer the longer it took.

use std::time::Duration;

use flowgate_tasks::store::{KeySpent, Shelf, StoreError};
use tokio::sync::Mutex;

use crate::clock::Stopwatch;

/// So many are found, those of queues among them.
const MOST: u32 = 200;
const FRESH: Duration = Duration::from_secs(1);
/// It rests so many times as long as a look took.
const REST: u32 = 9;

/// The last look.
#[derive(Default)]
pub(super) struct Busiest(Mutex<Option<(Stopwatch, Duration, Vec<KeySpent>)>>);

impl Busiest {
    /// Those with something in flight or in line, the busiest first.
    ///
    /// Cancel safety: dropped, the next who asks looks anew.
    pub(super) async fn keys(&self, store: &dyn Shelf) -> Result<Vec<KeySpent>, StoreError> {
        let mut last = self.0.lock().await;
        if let Some((asked, rest, keys)) = &*last
            && asked.elapsed() < *rest
        {
            return Ok(keys.clone());
        }
        let asked = Stopwatch::start();
        let mut keys = store.busiest_keys(MOST).await?;
        keys.retain(|spent| spent.key.waiting > 0 || spent.key.in_use > 0);
        let rest = (asked.elapsed() * REST).max(FRESH);
        *last = Some((Stopwatch::start(), rest, keys.clone()));
        Ok(keys)
    }
}
