//! A store that answers and takes nothing more.

use std::time::Instant;

use http::{Method, StatusCode};

use crate::{
    endpoint::Endpoint,
    kit::{Answer, DEADLINE, Kit, Server},
};

async fn becomes(server: &Server, status: StatusCode) -> Answer {
    let started = Instant::now();
    loop {
        let answer = server.ask_plainly(Method::GET, "/ready", &[], "").await;
        if answer.status == status {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "{answer:?} is not {status}");
        flowgate_testkit::between_looks().await;
    }
}

/// It is not ready, and not because its store is slow just now.
async fn is_full(server: &Server) -> Answer {
    loop {
        let answer = becomes(server, StatusCode::SERVICE_UNAVAILABLE).await;
        if !answer.text.contains("has not answered") {
            return answer;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_it_is_not_ready_while_nothing_can_be_written_and_ready_again_after() {
    // Seen to fail: with the store asked for what it has and nothing else, it stayed ready.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    becomes(&server, StatusCode::OK).await;
    // Nobody sends anything: its own lease tells it.
    server.set_full(true);
    let away = is_full(&server).await;
    assert_eq!(away.text, "not ready: the store can be read and not written\n");
    let path = format!("/v2/publish/{}", endpoint.url("/ok/a"));
    let refused = server.ask(Method::POST, &path, &[], "body").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(is_full(&server).await.text, away.text);
    server.says("disk I/O error").await;
    server.set_full(false);
    becomes(&server, StatusCode::OK).await;
    let said = server.says("the store can be written again").await;
    assert_eq!(said.matches("written again").count(), 1, "{said}");
    server.publish(&endpoint.url("/ok/b"), &[]).await;
    endpoint.came(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_lines_of_the_log_that_are_dropped_are_told_and_counted() {
    // Seen to fail: as it was, nothing was said of them.
    let kit = Kit::sqlite();
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    server.publish(&endpoint.url("/hold/a"), &[]).await;
    endpoint.holds("a", 1).await;
    kit.alter("CREATE TRIGGER halt BEFORE INSERT ON sheets BEGIN SELECT RAISE(ABORT, 'halted'); END;");
    endpoint.release(1);
    let said = server.says("lines of the log were dropped, and more will be").await;
    assert!(said.contains("halted"), "{said}");
    kit.alter("DROP TRIGGER halt;");
    let id = server.publish(&endpoint.url("/ok/b"), &[]).await;
    server.logged(&id, "DELIVERED").await;
    let page = server.ask(Method::GET, "/metrics", &[], "").await.text;
    let dropped = page.lines().find_map(|line| line.strip_prefix("flowgate_log_lines_dropped_total "));
    let dropped = dropped.unwrap_or_else(|| panic!("{page}"));
    assert_ne!(dropped, "0");
    server.says(&format!("the log can be written again; {dropped} of its lines were dropped")).await;
}
