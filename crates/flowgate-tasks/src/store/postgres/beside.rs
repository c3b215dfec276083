//! Another connection beside the store's own: tests bring about by it what happens between two statements.

use std::{cell::Cell, time::Duration};

use tokio::time::timeout;

use super::{
    identity::Known,
    session::{Plans, Session},
    tls::Address,
};

/// Nothing here takes so long.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
/// What is known of a connection that waits for a lock, and of one that looked for a task among those that run.
pub(super) const WAITS: &str = "wait_event_type = 'Lock'";
pub(super) const HAS_LOOKED: &str = "state = 'idle' AND query LIKE 'WITH seen%'";

pub(super) async fn other(url: &str) -> Session {
    let address = Address::parse(url).expect("an address");
    Session::open(&address, &Known::default(), &[], Plans::Any).await.expect("a connection")
}

async fn is_any(other: &Session, is_so: &str) -> bool {
    let count =
        format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {is_so}");
    // It may be in a transaction, which else would see the same ones for as long as it lasts.
    other.run("SELECT pg_stat_clear_snapshot()").await.expect("another look");
    other.client().query_one(&count, &[]).await.expect("a count").get::<_, i64>(0) > 0
}

/// Until there is a connection of which this is true.
pub(super) async fn until(other: &Session, is_so: &str) {
    timeout(DEADLINE, async { while !is_any(other, is_so).await {} }).await.expect("it is so in time");
}

/// What comes of this question, which has to wait for what somebody else is about to do.
pub(super) async fn behind<T>(url: &str, change: &str, question: impl Future<Output = T>) -> T {
    let other = other(url).await;
    other.run(&format!("BEGIN; {change}")).await.expect("it is about to happen");
    let is_over = Cell::new(false);
    let happen = async {
        while !is_over.get() && !is_any(&other, WAITS).await {}
        other.run("COMMIT").await.expect("it has happened");
    };
    let answered = async {
        let answer = question.await;
        is_over.set(true);
        answer
    };
    let (answer, ()) = tokio::join!(answered, happen);
    answer
}
