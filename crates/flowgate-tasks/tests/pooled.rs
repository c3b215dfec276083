//! A pooler between a store and its database.

#![cfg(feature = "postgres")]

use flowgate_tasks::store::{Address, Postgres};
use flowgate_testkit::postgres::{Postgres as Cluster, pool_transactions};

// Seen to fail: without the question the store opened, and said nothing.
#[tokio::test]
async fn s1_behind_a_pooler_of_transactions_a_store_does_not_open_and_says_what_to_do() {
    let cluster = Cluster::shared();
    let url = cluster.create_database("pooled").expect("a database");
    assert!(Address::parse(&url).expect("an address").keeps_sessions().await.expect("asked"));
    let port = pool_transactions(cluster.port()).expect("a pooler");
    let pooled = url.replace(&format!(":{}/", cluster.port()), &format!(":{port}/"));
    let refused = Postgres::connect(&pooled).await.expect_err("it is refused").to_string();
    assert!(refused.contains(Address::POOLED), "{refused}");
    let made = cluster.psql(&url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'flowgate'");
    assert_eq!(made.expect("an answer"), "0", "nothing was done");
}
