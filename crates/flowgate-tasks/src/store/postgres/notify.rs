//! Wake-ups from other processes, by LISTEN and NOTIFY.
//!
//! Owns the listening connection and the words on it: `w` for work, `d` for a delay, `c<id>` to cancel a task, `e<id>` for one that ended.
//! A connection that broke comes back by itself; whoever listens is woken then, for anything may have happened.

use std::time::Duration;

use futures_util::{StreamExt, stream::poll_fn};
use tokio::{sync::broadcast, task::JoinHandle};
use tokio_postgres::{AsyncMessage, Client};

use super::{session::failed, tls::Address};
use crate::{
    store::{StoreError, Wake},
    task::TaskId,
};

/// What all of us listen on.
pub(super) const CHANNEL: &str = "flowgate";

/// How long to wait before the connection is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// Listens for as long as it lives.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    pub(super) async fn start(
        address: &Address,
        wakes: &broadcast::Sender<Wake>,
    ) -> Result<Self, StoreError> {
        let mut listening = listen(address, wakes).await?;
        let (address, wakes) = (address.clone(), wakes.clone());
        Ok(Listener(tokio::spawn(async move {
            loop {
                let _ = (&mut listening.connection).await;
                listening = loop {
                    tokio::time::sleep(PAUSE).await;
                    if let Ok(listening) = listen(&address, &wakes).await {
                        break listening;
                    }
                };
                let _ = wakes.send(Wake::Work);
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

async fn listen(address: &Address, wakes: &broadcast::Sender<Wake>) -> Result<Listening, StoreError> {
    let (client, mut connection) = address.connect().await.map_err(failed("connected to listen"))?;
    let wakes = wakes.clone();
    let connection = tokio::spawn(async move {
        let mut messages = poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(said) = message {
                read(said.payload()).map(|wake| wakes.send(wake));
            }
        }
    });
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(failed("listened"))?;
    Ok(Listening { connection, _client: client })
}

fn read(said: &str) -> Option<Wake> {
    let id = || said.get(1..).and_then(|id| id.parse().ok()).map(TaskId);
    match said.as_bytes().first()? {
        b'w' => Some(Wake::Work),
        b'd' => Some(Wake::Due),
        b'c' => id().map(Wake::Cancel),
        b'e' => id().map(Wake::Ended),
        _ => None,
    }
}
