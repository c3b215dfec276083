//! W3: what a client is told when an upstream fails.

use std::net::TcpListener;

use crate::{
    client::Message,
    program::{Program, config},
    upstream::{OK, OK_AND_ON, Service, Upstream},
};

fn route(lines: &str) -> String {
    format!("[[gateway.route]]\nname = \"actions\"\npath = \"/{{*rest}}\"\nmax = 1\n{lines}\n")
}

/// The status and the code, and that the figures are told and the slot is free again.
fn told(program: &Program, answer: &Message) -> (u16, String) {
    assert_eq!(answer.header("concurrency-limit"), Some("1"), "{answer:?}");
    program.settle(0, 0);
    (answer.status(), answer.code())
}

#[test]
fn w3_an_upstream_that_takes_no_connection_is_502() {
    // Seen to fail: with `Fault::Unreachable` told as 500.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).unwrap();
    let program = Program::before(address, "", &route(""));
    let answer = program.post("/a", "");
    assert_eq!(told(&program, &answer), (502, "PLATFORM.UPSTREAM_UNREACHABLE".to_owned()));
}

#[test]
fn w3_an_upstream_that_hangs_up_or_talks_nonsense_is_502() {
    // Seen to fail: with the error returned to hyper, the client gets no answer at all.
    for said in ["", "HTTP/1.1 2", "no such protocol\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n"] {
        let upstream = Upstream::new();
        let program = Program::before(upstream.address, "", &route(""));
        let mut client = program.client();
        client.ask("POST", "/a", "");
        let (mut asked, _) = upstream.take();
        asked.send(said);
        drop(asked);
        assert_eq!(told(&program, &client.read()), (502, "PLATFORM.UPSTREAM_FAILED".to_owned()), "{said:?}");
    }
}

#[test]
fn w3_an_upstream_that_does_not_answer_in_time_is_504_and_hung_up_on() {
    // Seen to fail: without `is_over` asked while waiting, the test never ends.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", &route("response_timeout = \"100ms\""));
    let mut client = program.client();
    client.ask("POST", "/a", "");
    let (mut asked, _) = upstream.take();
    assert_eq!(told(&program, &client.read()), (504, "PLATFORM.UPSTREAM_TIMEOUT".to_owned()));
    assert!(asked.ends(), "the upstream is told that nobody waits any more");
}

#[test]
fn w3_a_client_that_stops_sending_its_body_is_408() {
    // Seen to fail: with `Fault::Late` whoever stands still.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", &route("stream_timeout = \"100ms\""));
    let mut client = program.client();
    client.ask("POST", "/a", "Content-Length: 10\r\n");
    client.send("12345");
    let mut asked = upstream.accept();
    asked.read_head();
    assert_eq!(asked.exactly(5), b"12345", "what came was sent on at once");
    assert_eq!(told(&program, &client.read()), (408, "PLATFORM.REQUEST_TIMEOUT".to_owned()));
    assert!(asked.ends());
}

#[test]
fn w3_a_body_beyond_the_limit_is_413() {
    // Seen to fail: with the bytes of a body in chunks not counted.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", &route("max_body = 4"));
    let mut client = program.client();
    client.ask("POST", "/a", "Content-Length: 5\r\n");
    assert_eq!(client.read().code(), "PLATFORM.BODY_TOO_LARGE");
    assert!(upstream.is_quiet(), "a length that is told is refused at once");

    let mut client = program.client();
    client.ask("POST", "/a", "Transfer-Encoding: chunked\r\n");
    client.send("3\r\nabc\r\n");
    let mut asked = upstream.accept();
    asked.read_head();
    assert_eq!(asked.read_chunk(), "abc");
    client.send("2\r\nde\r\n");
    assert_eq!(told(&program, &client.read()), (413, "PLATFORM.BODY_TOO_LARGE".to_owned()));
    assert!(asked.ends());
}

#[test]
fn w3_a_body_that_breaks_off_in_the_middle_is_not_taken_for_whole() {
    // Seen to fail: with the error of the upstream's body taken for its end.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", &route(""));
    let mut client = program.client();
    client.ask("POST", "/a", "");
    let (mut asked, _) = upstream.take();
    asked.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
    let head = client.read_head();
    assert_eq!((head.status(), client.exactly(5)), (200, b"12345".to_vec()));
    drop(asked);
    assert!(client.ends());
    program.settle(0, 0);
}

#[test]
fn w3_connections_to_the_upstream_are_kept_and_a_dead_one_is_no_failure() {
    // Seen to fail: with `Unsent` told as 502.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "workers = 1", &route(""));
    let mut client = program.client();
    client.ask("POST", "/a", "");
    let (mut asked, _) = upstream.take();
    asked.send(OK_AND_ON);
    assert_eq!(client.read().status(), 200);

    client.ask("POST", "/b", "");
    assert_eq!(asked.read().first, "POST /b HTTP/1.1", "the same connection again");
    asked.send(OK_AND_ON);
    assert_eq!(client.read().status(), 200);

    drop(asked);
    client.ask("POST", "/c", "Content-Length: 2\r\n");
    client.send("hi");
    let (mut asked, request) = upstream.take();
    assert_eq!(
        (request.first.as_str(), request.text()),
        ("POST /c HTTP/1.1", "hi"),
        "on a new connection, whole"
    );
    asked.send(OK);
    assert_eq!(client.read().status(), 200);
}

#[test]
fn w3_where_one_upstream_is_down_the_next_one_is_asked() {
    // Seen to fail: with only the first of them tried.
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).unwrap();
    let upstream = Service::new();
    let two = format!("upstreams = [\"http://{gone}\", \"http://{}\"]", upstream.address);
    let program = Program::start(&config(gone, "", &route(&two)));
    for _ in 0..4 {
        assert_eq!(program.post("/a", "").status(), 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}
