//! TLS towards PostgreSQL: a real server with a certificate of a private authority.

#![cfg(feature = "postgres")]

use std::fs;

use flowgate_tasks::{
    NewTask,
    store::{Postgres, Store},
};
use flowgate_testkit::postgres::{Options, Postgres as Cluster};

/// A certificate for `gateway.test`, its key, and the authority behind it.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../flowgate-server/tests/gateway/tls");

/// A server that speaks TLS.
fn server() -> Cluster {
    let cluster = Cluster::start(Options::default()).expect("a server");
    for (from, to) in [("cert.pem", "server.crt"), ("key.pem", "server.key")] {
        let pem = fs::read_to_string(format!("{FOLDER}/{from}")).expect("it is there");
        let line = pem.replace('\n', "|");
        let write = format!("COPY (SELECT '{line}') TO PROGRAM 'umask 077; tr \"|\" \"\\n\" > {to}'");
        cluster.psql(&cluster.url(), &write).expect("the server writes it, as its own user");
    }
    cluster.psql(&cluster.url(), "ALTER SYSTEM SET ssl = on").expect("a setting");
    cluster.psql(&cluster.url(), "SELECT pg_reload_conf()").expect("it is read");
    cluster
}

/// How many connections of ours are encrypted, and how many there are.
fn encrypted(cluster: &Cluster) -> String {
    let sql = "SELECT count(*) FILTER (WHERE ssl) || ' of ' || count(*) FROM pg_stat_ssl \
        JOIN pg_stat_activity USING (pid) WHERE application_name = 'flowgate'";
    cluster.psql(&cluster.url(), sql).expect("it tells")
}

/// Returns when none of our connections is left.
async fn nobody(cluster: &Cluster) {
    while encrypted(cluster) != "0 of 0" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_mode_says_whether_connections_are_encrypted_and_who_the_server_must_be() {
    let cluster = server();
    let ca = format!("{FOLDER}/ca.pem");
    let at = |host: &str, query: &str| {
        format!("postgres://flowgate@{host}:{}/postgres?hostaddr=127.0.0.1&{query}", cluster.port())
    };
    // The server takes its new settings when it comes to it.
    while Postgres::connect(&at("localhost", "sslmode=require")).await.is_err() {}
    nobody(&cluster).await;
    for (host, query, told) in [
        ("localhost", "sslmode=disable", "0 of 2"),
        ("localhost", "sslmode=prefer", "2 of 2"),
        ("localhost", "connect_timeout=5", "2 of 2"),
        ("localhost", "sslmode=require", "2 of 2"),
        ("gateway.test", &format!("sslmode=verify-full&sslrootcert={}", ca.replace('/', "%2F")), "2 of 2"),
    ] {
        let store = Postgres::connect(&at(host, query)).await.expect(query);
        store.send(vec![NewTask::new("test", Vec::new())]).await.expect("it is stored");
        // One that sends and one that listens.
        assert_eq!(encrypted(&cluster), told, "{query}");
        drop(store);
        nobody(&cluster).await;
    }
    for (host, query, why) in [
        ("localhost", &*format!("sslmode=verify-full&sslrootcert={ca}"), "not valid for name \"localhost\""),
        ("gateway.test", "sslmode=verify-full", "UnknownIssuer"),
        (
            "localhost",
            "sslmode=verify",
            "`sslmode` is \"verify\"; accepted: disable, prefer, require or verify-full",
        ),
        (
            "localhost",
            "sslmode=require&sslrootcert=x.pem",
            "`sslrootcert` is \"x.pem\"; accepted: a file of certificates together",
        ),
        (
            "localhost",
            "sslmode=verify-full&sslrootcert=/none.pem",
            "`sslrootcert` is \"/none.pem\"; accepted: a file of",
        ),
    ] {
        let refused = Postgres::connect(&at(host, query)).await.err().map(|error| error.to_string());
        assert!(refused.as_ref().is_some_and(|said| said.contains(why)), "{query}: {refused:?}");
    }
}
