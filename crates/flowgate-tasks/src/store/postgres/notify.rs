//! Wake-ups from other processes, by LISTEN and NOTIFY.
//!
//! Owns the listening connection and the words on it: `w` for work, `d` for a delay, `c<id>` to cancel a
//! task, `e<id>` for one that ended, `l<key>` for limits of a key that changed, `l` for any limits, `b` for a
//! worker that was removed. A connection that broke comes back by itself; whoever listens is woken then, for
//! anything may have happened.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::poll_fn};
use tokio::{sync::broadcast, task::JoinHandle};
use tokio_postgres::{AsyncMessage, Client};

use super::{
    orphans::Search,
    session::{failed, given_up, in_time},
    tls::Address,
};
use crate::{
    store::{StoreError, Wake},
    task::TaskId,
};

/// What all of us listen on.
pub(super) const CHANNEL: &str = "flowgate";

/// How long to wait before the connection is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// Who is told.
#[derive(Clone)]
pub(super) struct Hearing {
    pub(super) wakes: broadcast::Sender<Wake>,
    /// The store's own mark.
    pub(super) mark: String,
    pub(super) orphans: Arc<Search>,
}

impl Hearing {
    fn hear(&self, said: &str) {
        if said.starts_with('b') {
            return self.orphans.expect();
        }
        let _ = read(said, &self.mark).map(|wake| self.wakes.send(wake));
    }
}

/// Listens for as long as it lives.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    pub(super) async fn start(address: &Address, hearing: Hearing) -> Result<Self, StoreError> {
        let mut listening = in_time(listen(address, &hearing)).await?;
        let address = address.clone();
        Ok(Listener(tokio::spawn(async move {
            loop {
                let _ = (&mut listening.connection).await;
                listening = loop {
                    tokio::time::sleep(PAUSE).await;
                    if let Ok(listening) = in_time(listen(&address, &hearing)).await {
                        break listening;
                    }
                };
                hearing.orphans.expect();
                let _ = hearing.wakes.send(Wake::Missed);
            }
        })))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Listening {
    connection: JoinHandle<()>,
    /// The connection ends with its client.
    _client: Client,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

async fn listen(address: &Address, hearing: &Hearing) -> Result<Listening, StoreError> {
    let (client, mut connection) = address.connect().await.map_err(failed("connecting to listen"))?;
    let hearing = hearing.clone();
    let connection = tokio::spawn(async move {
        let mut messages = poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(said) = message {
                hearing.hear(said.payload());
            }
        }
    });
    // One that takes nothing any more would keep all that is said for all others, too.
    let begin = format!("{}; LISTEN {CHANNEL}", given_up!());
    client.batch_execute(&begin).await.map_err(failed("listening"))?;
    Ok(Listening { connection, _client: client })
}

/// What was said, unless it is this store's own word to others, marked as such.
fn read(said: &str, mark: &str) -> Option<Wake> {
    let id = || said.get(1..).and_then(|id| id.parse().ok()).map(TaskId);
    match said.as_bytes().first()? {
        b'w' => (said.get(1..) != Some(mark)).then_some(Wake::Work),
        b'd' => Some(Wake::Due),
        b'c' => id().map(Wake::Cancel),
        b'e' => id().map(Wake::Ended),
        // A word that cannot be read is about anything.
        b'l' => Some(Wake::Limits(id().map(|TaskId(key)| key))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::sync::broadcast;

    use super::{Hearing, Search, Wake, read};

    // Seen to fail: with its own words passed over, it did not look for what a worker held that it had removed by a statement
    // whose reply was lost.
    #[test]
    fn t5_a_store_hears_of_each_worker_that_is_removed() {
        let (wakes, _) = broadcast::channel(1);
        let hearing = Hearing { wakes, mark: "ab12".to_owned(), orphans: Arc::new(Search::default()) };
        assert!(hearing.orphans.is_due(Duration::ZERO), "it has just begun");
        for said in ["b", "bab12", "bcd34"] {
            assert!(!hearing.orphans.is_due(Duration::ZERO));
            hearing.hear(said);
            assert!(hearing.orphans.is_due(Duration::ZERO), "{said}");
        }
    }

    #[test]
    fn a_store_hears_all_but_its_own_wake_ups() {
        assert!(matches!(read("w", "ab12"), Some(Wake::Work)), "of an earlier version, or of a turn");
        assert!(matches!(read("wcd34", "ab12"), Some(Wake::Work)), "of another store");
        assert!(read("wab12", "ab12").is_none(), "its own");
        assert!(matches!(read("e17", "17"), Some(Wake::Ended(_))), "only wake-ups are marked");
        let limits = ["l", "l17"].map(|said| read(said, "17"));
        assert_eq!(limits, [Some(Wake::Limits(None)), Some(Wake::Limits(Some(17)))]);
    }
}
