//! More than there is room for: of messages that wait, and of requests.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use flowgate_core::Limits;
use flowgate_tasks::{NewTask, SERVER_QUEUE};
use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

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
    let limits = Limits::builder().max(2).build().unwrap();
    for _ in 0..WAITING / BATCH {
        let task = || NewTask::new("deliver", vec![b'.'; 300]).queue(SERVER_QUEUE).key(key).limits(limits);
        kit.send_all((0..BATCH).map(|_| task()).collect()).await;
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
        kit.end_leases();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_a_flood_of_webhooks_shuts_out_nobody_with_a_token() {
    // Seen to fail: without a gate of their own, webhooks took all places of the API and of its line, and an operator got 503.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server_after("[server]\nmax_requests = 8\n"), Endpoint::start().await);
    let path = format!("/v2/trigger/{}", endpoint.url("/hold/run"));
    let run = server.ask(Method::POST, &path, &[], "{}").await.json();
    let hook = format!("/v2/workflows/hooks/anybody/{}/called", run["workflowRunId"].as_str().unwrap());
    // Calls that never end: two are under way, eight wait, and the others are turned away.
    let mut flood = Vec::new();
    for _ in 0..60 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST {hook} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        flood.push(stream);
    }
    let gate = |name: &'static str, in_use: u64, waiting: u64| {
        move |top: &serde_json::Value| {
            let gates = top["gates"].as_array().cloned().unwrap_or_default();
            gates
                .iter()
                .any(|gate| gate["name"] == name && gate["in_use"] == in_use && gate["waiting"] == waiting)
        }
    };
    server.until("/top", "two webhooks under way, eight in line", gate("webhooks", 2, 8)).await;
    for _ in 0..20 {
        let answer = server.ask(Method::GET, "/v2/queues", &[], "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let refused = server.ask_plainly(Method::POST, &hook, &[], "{}").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    drop(flood);
    server.until("/top", "no webhooks under way", gate("webhooks", 0, 0)).await;
    assert_eq!(server.ask_plainly(Method::POST, &hook, &[], "{}").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_connections_that_say_nothing_are_closed_and_no_more_are_taken_than_may_be() {
    // Seen to fail: without the timeout, they stay; with room for more connections, the last is answered before one is closed.
    let kit = Kit::sqlite();
    let server = kit.server_after("[server]\nmax_connections = 4\nidle_timeout = \"2s\"\n");
    let connect = async |said: &str| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        stream
    };
    let end = async |(mut said, mut stream): (String, TcpStream)| {
        timeout(DEADLINE, stream.read_to_string(&mut said)).await.expect("closed in time").unwrap();
        said
    };
    let (silent, slow) = (connect("").await, connect("GET /health HTTP/1.1\r\nhost: x\r\nx-slow: ").await);
    let request = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    let others = [silent, slow, connect(request).await, connect(request).await];
    let last = connect("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    let last = end((String::new(), last)).await;
    let others = others.map(heard);
    let closed = others.iter().filter(|(_, is_closed, _)| *is_closed).count();
    assert!(closed > 0, "there was no place for the last before another's time was over");
    let [silent, slow, kept, other] = others.map(|(said, _, stream)| (said, stream));
    let [silent, slow, kept, other] = [end(silent).await, end(slow).await, end(kept).await, end(other).await];
    assert!(silent.is_empty() && !slow.starts_with("HTTP/1.1 2"), "{silent:?} {slow:?}");
    assert!([kept, other, last].iter().all(|said| said.contains("well")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_a_client_that_reads_nothing_loses_its_connection() {
    // Seen to fail: with no time for what is to be sent, the only place was never given back, and nobody else was answered.
    let kit = Kit::sqlite();
    let server = kit.server_after("[server]\nmax_connections = 1\nidle_timeout = \"1s\"\n");
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(server.address).await.unwrap();
    // More than the system takes for a client that reads nothing.
    let request = "GET /console/assets/style.css HTTP/1.1\r\nhost: x\r\n\r\n";
    deaf.write_all(request.repeat(1000).as_bytes()).await.unwrap();
    let mut other = TcpStream::connect(server.address).await.unwrap();
    other.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut said = String::new();
    timeout(DEADLINE, other.read_to_string(&mut said))
        .await
        .expect("there is a place for it in time")
        .unwrap();
    assert!(said.contains("well"), "{said}");
    drop(deaf);
}

/// What the system has of a connection at this moment: what was said, and whether it is closed.
fn heard(stream: TcpStream) -> (String, bool, TcpStream) {
    let mut stream = stream.into_std().unwrap();
    let mut said = Vec::new();
    let is_closed = std::io::Read::read_to_end(&mut stream, &mut said).is_ok();
    (String::from_utf8(said).unwrap(), is_closed, TcpStream::from_std(stream).unwrap())
}

#[test]
fn s4_a_server_has_as_many_files_as_the_system_allows() {
    // Seen to fail: without asking for them, it had 300.
    let mut server = Command::new("sh")
        .args([
            "-c",
            "ulimit -S -n 300 && exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_flowgate"),
            "serve",
            "--dev",
        ])
        .args(["--listen", "127.0.0.1:0", "--store", "sqlite::memory:"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut greeting = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().collect();
    assert!(files[0] == files[1] && files[0] != "300", "{greeting}{files:?}");
}
