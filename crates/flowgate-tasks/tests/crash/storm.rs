//! What others do to the database while workers are killed: they end connections, lock rows and tables, rewrite tables
//! and change limits.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use flowgate_core::Limits;
use flowgate_tasks::store::{KeyChange, Postgres, QueueLimits, Store, StoreError};
use tokio_postgres::NoTls;

use super::fleet::{Plan, random};

const TABLES: [&str; 7] = ["cluster", "queues", "keys", "lanes", "tasks", "leases", "workers"];

/// It lasts until it is dropped. Then all may run again.
struct Storm {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(super) fn start(url: &str, plan: &Plan, seed: u64) -> Box<dyn Any> {
    let is_over = Arc::<AtomicBool>::default();
    let (ends, url, plan) = (Arc::clone(&is_over), url.to_owned(), plan.clone());
    let blow = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(blow(&url, &plan, seed, &ends));
    };
    Box::new(Storm { is_over, thread: Some(thread::spawn(blow)) })
}

/// Runs this, unless the connection is ended meanwhile.
pub(super) fn by_hand(url: &str, sql: &str) -> Result<(), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let sql = format!("SET search_path TO flowgate; {sql}");
    runtime.expect("a runtime").block_on(disturb(url, &sql))
}

async fn blow(url: &str, plan: &Plan, mut seed: u64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        // It may be told to give way, or end its own connection.
        let _ = match random(&mut seed, 3) {
            0 => disturb(url, END_CONNECTIONS).await,
            1 => disturb(url, &lock(&mut seed)).await,
            _ => change(url, plan, &mut seed).await,
        };
    }
    while restore(url, plan).await.is_err() {}
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "a storm does not fail");
        }
    }
}

const END_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE application_name = 'flowgate' AND datname = current_database()";

/// Somebody has rows or a table for a while, or rewrites the table.
fn lock(seed: &mut u64) -> String {
    let table = TABLES[random(seed, TABLES.len() as u64) as usize];
    let span = random(seed, 300) as f64 / 1000.0;
    match random(seed, 4) {
        0 => format!("VACUUM FULL flowgate.{table}"),
        1 => format!("BEGIN; LOCK TABLE flowgate.{table}; SELECT pg_sleep({span}); COMMIT"),
        _ => format!("BEGIN; SELECT FROM flowgate.{table} FOR UPDATE; SELECT pg_sleep({span}); ROLLBACK"),
    }
}

async fn disturb(url: &str, sql: &str) -> Result<(), StoreError> {
    let failed =
        |error: tokio_postgres::Error| StoreError::Database { doing: "stormed", why: error.to_string() };
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let done = client.batch_execute(sql).await.map_err(failed);
    drop(client);
    let _ = connection.await;
    done
}

fn key(plan: &Plan, seed: &mut u64) -> String {
    format!("key-{}", random(seed, plan.keys.max(1) as u64))
}

/// Limits become stricter, or what they were.
async fn change(url: &str, plan: &Plan, seed: &mut u64) -> Result<(), StoreError> {
    let store = Postgres::connect(url).await?;
    let one = Limits::builder().max(1).build().expect("limits");
    let (name, cap) = ("default".to_owned(), 1 + random(seed, u64::from(plan.cap)) as u32);
    // Where caps are soft, it is the queue that has the one of the plan.
    let changes = if plan.ahead == 0 { 10 } else { 8 };
    match random(seed, changes) {
        0 => store.set_cluster_cap(Some(cap)).await,
        1 => store.set_cluster_cap(Some(plan.cap)).await,
        2 => store.change_key(key(plan, seed), KeyChange::Pin(one)).await,
        3 => store.change_key(key(plan, seed), KeyChange::Unpin).await,
        4 => store.change_key(key(plan, seed), KeyChange::Pause).await,
        5 => store.change_key(key(plan, seed), KeyChange::Resume).await,
        6 => store.pause_queue(name, true).await.map(drop),
        7 => store.pause_queue(name, false).await.map(drop),
        8 => store.set_queue(QueueLimits { name, priority: 1, max: Some(cap) }).await,
        _ => store.set_queue(QueueLimits { name, priority: 1, max: None }).await,
    }
}

async fn restore(url: &str, plan: &Plan) -> Result<(), StoreError> {
    let store = Postgres::connect(url).await?;
    store.set_cluster_cap(Some(plan.cap)).await?;
    store.pause_queue("default".to_owned(), false).await?;
    for key in 0..plan.keys {
        store.change_key(format!("key-{key}"), KeyChange::Unpin).await?;
        store.change_key(format!("key-{key}"), KeyChange::Resume).await?;
    }
    Ok(())
}
