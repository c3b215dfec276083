//! More than there is room for: of messages that wait, and of requests.

use std::{sync::Arc, time::Instant};

use flowgate_core::Limits;
use flowgate_tasks::{
    NewTask,
    store::{Postgres, Sqlite, Store},
};
use http::Method;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    endpoint::Endpoint,
    kit::{DEADLINE, Kit},
};

const KEY: &str = "Upstash-Flow-Control-Key";
const VALUE: &str = "Upstash-Flow-Control-Value";
const WAITING: u64 = 200_000;
const BATCH: u64 = 10_000;
const MOST_MEMORY: u64 = 140 * 1024 * 1024;

/// Puts messages behind those that hold the key's places. They never start, so nobody reads them.
async fn fill(kit: &Kit, key: &str) {
    let store: Arc<dyn Store> = match kit.store.strip_prefix("sqlite:") {
        Some(path) => Arc::new(Sqlite::open(path).unwrap()),
        None => Arc::new(Postgres::connect(&kit.store).await.unwrap()),
    };
    let limits = Limits::builder().max(2).build().unwrap();
    for _ in 0..WAITING / BATCH {
        let task = || NewTask::new("deliver", vec![b'.'; 300]).queue("messages").key(key).limits(limits);
        store.send((0..BATCH).map(|_| task()).collect()).await.unwrap();
    }
}

on_every_store! {
    #[test]
    async fn s4_a_long_line_takes_no_memory_and_delays_no_other_key(kit: &Kit) {
        // Seen to fail: with all that waits read at the start, the server had 198 MiB.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for _ in 0..2 {
            server.publish(&endpoint.url("/hold/busy"), &[(KEY, "busy"), (VALUE, "parallelism=2")]).await;
        }
        endpoint.holds("busy", 2).await;
        fill(kit, "busy").await;
        drop(server);
        // One that was started with all of it there, and takes up what the other held.
        let server = kit.server();
        endpoint.holds("busy", 2).await;
        server.key("busy", 2, WAITING).await;
        let before = endpoint.calls().len();
        for number in 0..20 {
            let url = endpoint.url(&format!("/ok/{number}"));
            server.publish(&url, &[(KEY, &format!("other-{number}")), (VALUE, "parallelism=1")]).await;
            endpoint.came(before + number + 1).await;
        }
        server.key("busy", 2, WAITING).await;
        let resident = server.resident();
        assert!(resident < MOST_MEMORY, "{} MiB with {WAITING} waiting", resident >> 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_a_flood_of_requests_is_refused_before_it_is_felt() {
    // Seen to fail: with room for a hundred times as many requests, nothing was refused.
    let kit = Kit::sqlite();
    let server = kit.server_after("[server]\nmax_requests = 8\n");
    // Requests that never end: eight are under way, thirty-two wait.
    let mut flood = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /v2/batch HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 9\r\n\r\n",
            server.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        flood.push(stream);
    }
    let asked = async |wanted: u16| {
        let started = Instant::now();
        loop {
            let answer = server.ask(Method::GET, "/v2/queues", &[], "").await;
            if answer.status == wanted {
                return answer;
            }
            assert!(started.elapsed() < DEADLINE, "not in time: {answer:?}");
        }
    };
    let refused = asked(503).await;
    assert!(refused.text.contains("queue-full") || refused.text.contains("queue-timeout"), "{refused:?}");
    let health = server.ask(Method::GET, "/health", &[], "").await;
    assert_eq!((health.status.as_u16(), health.text.as_str()), (200, "well\n"), "it is still there");
    drop(flood);
    asked(200).await;
}
