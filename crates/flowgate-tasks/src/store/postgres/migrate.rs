//! Brings the tables up to date: once, however many processes start at the same time.

use super::{session::failed, tls::Address};
use crate::store::StoreError;

/// Each step is run once, in this order. A step that was released never changes.
const STEPS: [&str; 7] = [
    include_str!("migrations/0001_tasks.sql"),
    include_str!("migrations/0002_shelf.sql"),
    include_str!("migrations/0003_runs.sql"),
    include_str!("migrations/0004_ahead.sql"),
    include_str!("migrations/0005_key_lists.sql"),
    include_str!("migrations/0006_latest.sql"),
    include_str!("migrations/0007_marks.sql"),
];

/// Any number will do, as long as nobody else in the database uses it as an advisory lock: "flowgate" on a telephone.
const LOCK: i64 = 35_694_283;

pub(super) async fn run(address: &Address) -> Result<(), StoreError> {
    let (mut client, connection) = address.connect().await.map_err(failed("connected"))?;
    let connection = tokio::spawn(connection);
    let done = steps(&mut client).await.map_err(failed("brought its tables up to date"));
    drop(client);
    let _ = connection.await;
    done
}

async fn steps(client: &mut tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    transaction
        .batch_execute(
            "SET LOCAL client_min_messages = warning;
             CREATE SCHEMA IF NOT EXISTS flowgate;
             SET LOCAL search_path TO flowgate;
             CREATE TABLE IF NOT EXISTS migrations (step integer PRIMARY KEY)",
        )
        .await?;
    let done: i64 = transaction.query_one("SELECT count(*) FROM migrations", &[]).await?.get(0);
    for (index, step) in STEPS.iter().enumerate().skip(done as usize) {
        transaction.batch_execute(step).await?;
        transaction.execute("INSERT INTO migrations VALUES ($1)", &[&(index as i32 + 1)]).await?;
    }
    transaction.commit().await
}
