//! Brings the tables up to date: once, however many processes start at the same time.

use tokio_postgres::IsolationLevel;

use super::{
    session::{failed, given_up},
    tls::Address,
};
use crate::store::StoreError;

/// Each step is run once, in this order. A step that was released never changes.
const STEPS: [&str; 15] = [
    include_str!("migrations/0001_tasks.sql"),
    include_str!("migrations/0002_shelf.sql"),
    include_str!("migrations/0003_runs.sql"),
    include_str!("migrations/0004_ahead.sql"),
    include_str!("migrations/0005_key_lists.sql"),
    include_str!("migrations/0006_latest.sql"),
    include_str!("migrations/0007_lost_keys.sql"),
    include_str!("migrations/0008_marks.sql"),
    include_str!("migrations/0009_dead.sql"),
    include_str!("migrations/0010_server_queue.sql"),
    include_str!("migrations/0011_lz4.sql"),
    include_str!("migrations/0012_sheets.sql"),
    include_str!("migrations/0013_cancels.sql"),
    include_str!("migrations/0014_packs.sql"),
    include_str!("migrations/0015_eras.sql"),
];

/// Any number will do, as long as nobody else in the database uses it as an advisory lock: "flowgate" on a telephone.
const LOCK: i64 = 35_694_283;

pub(super) async fn run(address: &Address) -> Result<(), StoreError> {
    let (mut client, connection) = address.connect().await.map_err(failed("connecting"))?;
    // Such text may be an error that a task ended with.
    if let Some(why) = Address::misfit(&connection) {
        return Err(StoreError::Database { doing: "connecting", why });
    }
    let connection = tokio::spawn(connection);
    let done = match steps(&mut client).await {
        Ok(done) if done > STEPS.len() => Err(StoreError::Database {
            doing: "connecting",
            why: format!(
                "its tables have version {done}, and this program supports up to version {}",
                STEPS.len()
            ),
        }),
        done => done.map(drop).map_err(failed("migrating its tables")),
    };
    drop(client);
    let _ = connection.await;
    done
}

/// Runs the steps that were not run yet. Gives how many were run in all, which is more than there are if a newer
/// program was here.
async fn steps(client: &mut tokio_postgres::Client) -> Result<usize, tokio_postgres::Error> {
    client.batch_execute(given_up!()).await?;
    // Where nothing is left to do, a role will do that may use the tables and make none.
    let there = "SELECT to_regclass('flowgate.migrations') IS NOT NULL";
    if client.query_one(there, &[]).await?.get(0) {
        let done: i64 = client.query_one("SELECT count(*) FROM flowgate.migrations", &[]).await?.get(0);
        if done as usize >= STEPS.len() {
            return Ok(done as usize);
        }
    }
    // Who waited for the lock has to see what was done meanwhile, whatever the database has for a default.
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    // `CREATE SCHEMA IF NOT EXISTS` asks for the right to make one, also where there is one.
    transaction
        .batch_execute(
            "SET LOCAL client_min_messages = warning;
             SET LOCAL jit TO off;
             DO $$ BEGIN IF to_regnamespace('flowgate') IS NULL THEN CREATE SCHEMA flowgate; END IF; END $$;
             SET LOCAL search_path TO flowgate;
             CREATE TABLE IF NOT EXISTS migrations (step integer PRIMARY KEY)",
        )
        .await?;
    let done: i64 = transaction.query_one("SELECT count(*) FROM migrations", &[]).await?.get(0);
    let done = done as usize;
    for (index, step) in STEPS.iter().enumerate().skip(done) {
        transaction.batch_execute(step).await?;
        transaction.execute("INSERT INTO migrations VALUES ($1)", &[&(index as i32 + 1)]).await?;
    }
    transaction.commit().await.map(|()| done.max(STEPS.len()))
}
