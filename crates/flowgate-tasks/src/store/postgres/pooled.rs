//! Whether a connection is a session, or shared with others between two transactions.
//!
//! Owns the question, which is asked before anything is done. Behind a pooler of transactions nothing fails
//! by itself: what a connection set, prepared or listens to is on another one with its next statement, or on
//! one that somebody else was given.

use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::sync::oneshot;
use tokio_postgres::{AsyncMessage, Error};

use super::tls::Address;

/// How long is waited for what comes by itself. A pooler has thrown it away by then; one who is slow tells it before it
/// answers the next question.
const QUIET: Duration = Duration::from_millis(500);

impl Address {
    /// What is wrong where [`keeps_sessions`](Self::keeps_sessions) says no, and what to do about it.
    pub const POOLED: &str = "a pooler in front of PostgreSQL gives its connections to other clients between \
        transactions, but Flowgate needs sessions of its own (for LISTEN, settings and prepared statements): use session \
        pooling for this database (PgBouncer: pool_mode = session), or connect to PostgreSQL directly";

    /// Whether a connection stays the same one: a connection that listens and does nothing must hear what
    /// another says. The server signals the listener before it answers the speaker, and tells what it has to
    /// tell before it answers the next question: so no server is too slow for this.
    ///
    /// Cancel safety: dropped, its connections end.
    pub async fn keeps_sessions(&self) -> Result<bool, Error> {
        let channel = format!("flowgate_session_{:016x}", RandomState::new().hash_one(0));
        let (listening, mut connection) = self.connect().await?;
        let (told, mut heard) = oneshot::channel();
        tokio::spawn(async move {
            let mut told = Some(told);
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    told.take().map(|told| told.send(()));
                }
            }
        });
        listening.batch_execute(&format!("LISTEN {channel}")).await?;
        let (speaking, connection) = self.connect().await?;
        tokio::spawn(connection);
        speaking.batch_execute(&format!("NOTIFY {channel}")).await?;
        let hears = matches!(tokio::time::timeout(QUIET, &mut heard).await, Ok(Ok(())));
        listening.batch_execute("").await?;
        let hears = hears || heard.try_recv().is_ok();
        // Whoever is given a pooler's connection next would hear what is said there.
        listening.batch_execute(&format!("UNLISTEN {channel}")).await?;
        Ok(hears)
    }
}
