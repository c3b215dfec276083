//! W3: a client that hangs up gives back its place and its slot, and the upstream hears of it.

use crate::{
    program::Program,
    upstream::{OK, Service, Upstream},
};

const ROUTE: &str = "[[gateway.route]]\nname = \"actions\"\npath = \"/{*rest}\"\nmax = 1\nmax_queue = 10\n";

#[test]
fn w3_one_who_hangs_up_in_line_leaves_it_and_never_reaches_the_upstream() {
    // Seen to fail: with hyper (`half_close`) and `Watches::tick` both not looking for hang-ups.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let held = upstream.hold(&program, "/first", "");
    let mut gone = program.client();
    gone.ask("POST", "/gone", "");
    program.settle(1, 1);
    drop(gone);
    program.settle(1, 0);
    assert_eq!(held.end().status(), 200);
    program.settle(0, 0);
    assert_eq!(upstream.seen(), ["POST /first HTTP/1.1"]);
}

#[test]
fn w3_one_who_hangs_up_in_line_with_a_body_unread_leaves_it_too() {
    // Seen to fail: without `is_hung_up` in `Watches::tick`: while a body is unread, nobody reads the end behind it.
    let upstream = Service::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let held = upstream.hold(&program, "/first", "");
    let mut gone = program.client();
    gone.ask("POST", "/gone", "Content-Length: 100000\r\n");
    gone.send(vec![b'x'; 50_000]);
    program.settle(1, 1);
    drop(gone);
    program.settle(1, 0);
    assert_eq!(held.end().status(), 200);
    assert_eq!(upstream.seen(), ["POST /first HTTP/1.1"]);
}

#[test]
fn w3_a_hang_up_while_the_upstream_works_cancels_its_call() {
    // Seen to fail: with hyper (`half_close`) and `Watches::tick` both not looking for hang-ups.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let mut gone = program.client();
    gone.ask("POST", "/gone", "");
    let (mut asked, _) = upstream.take();
    drop(gone);
    assert!(asked.ends(), "the upstream hears of it");
    program.settle(0, 0);
}

#[test]
fn w3_a_hang_up_while_the_response_streams_cancels_it_and_frees_the_slot() {
    // Seen to fail: with hyper (`half_close`) and `Watches::tick` both not looking for hang-ups.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let mut gone = program.client();
    gone.ask("POST", "/gone", "");
    let (mut asked, _) = upstream.take();
    asked.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
    assert_eq!((gone.read_head().status(), gone.read_chunk().as_str()), (200, "ok"));
    program.settle(1, 0);
    drop(gone);
    assert!(asked.ends(), "the upstream hears of it");
    program.settle(0, 0);
}

#[test]
fn w3_the_next_in_line_starts_when_the_one_before_hangs_up() {
    // Seen to fail: with hyper (`half_close`) and `Watches::tick` both not looking for hang-ups.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", ROUTE);
    let mut first = program.client();
    first.ask("POST", "/first", "");
    let (_asked, _) = upstream.take();
    let mut second = program.client();
    second.ask("POST", "/second", "");
    program.settle(1, 1);
    drop(first);
    let (mut asked, request) = upstream.take();
    assert_eq!(request.first, "POST /second HTTP/1.1");
    asked.send(OK);
    assert_eq!(second.read().status(), 200);
}
