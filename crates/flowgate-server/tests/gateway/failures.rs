//! W3: what a client is told when an upstream fails.

use std::{io::Write, thread};

use crate::{
    client::Message,
    program::{Program, config},
    upstream::{OK, OK_AND_ON, Service, Upstream, nobody},
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
    let (_gone, address) = nobody();
    let program = Program::before(address, "", &route(""));
    let answer = program.post("/a", "");
    assert_eq!(told(&program, &answer), (502, "PLATFORM.UPSTREAM_UNREACHABLE".to_owned()));
}

#[test]
fn w3_an_upstream_that_hangs_up_or_talks_nonsense_is_502() {
    // Seen to fail: with `Fault::Late` told.
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
    // Seen to fail: without `is_over` asked while waiting for the head, there is never an answer.
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
    let program = Program::before(upstream.address, "", &route("stream_timeout = \"2s\""));
    let mut client = program.client();
    client.ask("POST", "/a", "Content-Length: 10\r\n");
    client.send("12345");
    let mut asked = upstream.accept();
    asked.read_head();
    assert_eq!(asked.exactly(5), b"12345", "what came was sent on at once");
    let answer = client.read();
    assert_eq!(told(&program, &answer), (408, "PLATFORM.REQUEST_TIMEOUT".to_owned()));
    assert_eq!(answer.header("connection"), Some("close"));
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
    // Seen to fail: with the end of the upstream's connection taken for the end of its body.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", &route(""));
    let mut client = program.client();
    client.ask("POST", "/a", "");
    let (mut asked, _) = upstream.take();
    asked.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n");
    assert_eq!((client.read_head().status(), client.read_chunk().as_str()), (200, "12345"));
    drop(asked);
    assert_eq!(client.rest(), "", "no chunk says that this was all");
    program.settle(0, 0);
}

#[test]
fn w3_an_answer_that_comes_before_the_body_has_been_sent_is_the_answer() {
    // Seen to fail: with nothing read before all of the body has been sent.
    const BODY: usize = 64 << 20;
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", &route(""));
    let mut client = program.client();
    client.ask("POST", "/a", &format!("Content-Length: {BODY}\r\n"));
    let mut sender = client.share();
    let sending = thread::spawn(move || {
        // Whether all of it is taken is not the question.
        let _ = sender.write_all(&vec![b'x'; BODY]);
    });
    let mut asked = upstream.accept();
    asked.read_head();
    asked.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    let answer = client.read();
    assert_eq!((answer.status(), answer.text()), (401, "no"));
    assert_eq!(answer.header("connection"), Some("close"), "what is left of the body is not read");
    drop((asked, client));
    sending.join().expect("it does not panic");
    program.settle(0, 0);
}

#[test]
fn w3_one_whose_body_was_left_unread_is_told_that_its_connection_ends() {
    // Seen to fail: with `close` said to none of them, and to all of them.
    let (_socket, gone) = nobody();
    let upstream = Upstream::new();
    let dead = route(&format!("upstreams = [\"http://{gone}\"]")).replace("/{*rest}", "/gone/{*rest}");
    let program = Program::before(upstream.address, "", &dead);
    for (length, closes) in [(5, Some("close")), (0, None)] {
        let mut client = program.client();
        client.ask("POST", "/gone/a", &format!("Content-Length: {length}\r\n"));
        let answer = client.read();
        assert_eq!((answer.status(), answer.header("connection")), (502, closes), "{length}");
    }
    for (length, closes) in [(5, Some("close")), (2, None)] {
        let mut client = program.client();
        client.ask("POST", "/a", &format!("Content-Length: {length}\r\n"));
        client.send("he");
        let mut asked = upstream.accept();
        asked.read_head();
        asked.exactly(2);
        asked.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
        let answer = client.read();
        assert_eq!((answer.text(), answer.header("connection")), ("no", closes), "{length}");
    }
}

#[test]
fn w3_connections_to_the_upstream_are_kept_and_a_dead_one_is_no_failure() {
    // Seen to fail: with no second try for a request of which nothing was sent.
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
fn w3_a_connection_that_dies_under_a_request_fails_it_unless_it_is_safe_to_repeat() {
    // Seen to fail: with a POST repeated; with a GET not repeated.
    for (method, is_repeated) in [("POST", false), ("PATCH", false), ("GET", true), ("DELETE", true)] {
        let upstream = Upstream::new();
        let program = Program::before(upstream.address, "workers = 1", &route(""));
        let mut client = program.client();
        client.ask("POST", "/a", "");
        let (mut asked, _) = upstream.take();
        asked.send(OK_AND_ON);
        assert_eq!(client.read().status(), 200);

        client.ask(method, "/b", "");
        assert_eq!(asked.read().first, format!("{method} /b HTTP/1.1"), "on the connection that was kept");
        drop(asked);
        if is_repeated {
            let (asked, request) = upstream.take();
            assert_eq!(request.first, format!("{method} /b HTTP/1.1"), "once more, on a new one");
            drop(asked);
        }
        assert_eq!(told(&program, &client.read()), (502, "PLATFORM.UPSTREAM_FAILED".to_owned()), "{method}");
        assert!(upstream.is_quiet(), "{method}: and no more than that");
    }
}

#[test]
fn w3_a_request_that_an_upstream_has_begun_to_answer_is_not_repeated() {
    // Seen to fail: with all repeated that failed on a connection that was kept.
    for said in ["no such protocol\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 102 Processing\r\n\r\n"]
    {
        let upstream = Upstream::new();
        let program = Program::before(upstream.address, "workers = 1", &route(""));
        let mut client = program.client();
        client.ask("GET", "/a", "");
        let (mut asked, _) = upstream.take();
        asked.send(OK_AND_ON);
        assert_eq!(client.read().status(), 200);
        client.ask("GET", "/b", "");
        asked.read();
        asked.send(said);
        drop(asked);
        assert_eq!(told(&program, &client.read()), (502, "PLATFORM.UPSTREAM_FAILED".to_owned()), "{said}");
        assert!(upstream.is_quiet(), "{said}: it is asked once");
    }
}

#[test]
fn w3_where_one_upstream_is_down_the_next_one_is_asked() {
    // Seen to fail: with only the first of them tried.
    let (_socket, gone) = nobody();
    let upstream = Service::new();
    let two = format!("upstreams = [\"http://{gone}\", \"http://{}\"]", upstream.address);
    let program = Program::start(&config(gone, "", &route(&two)));
    for _ in 0..4 {
        assert_eq!(program.post("/a", "").status(), 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[test]
fn w3_a_body_that_fails_is_not_sent_again_without_what_failed() {
    // Seen to fail: with a body that failed taken for one of which nothing was sent: `abc` was a whole body.
    for (body, status) in [
        (format!("14\r\n{}\r\n3\r\nabc\r\n0\r\n\r\n", "A".repeat(20)), 413),
        ("ZZ\r\nabc\r\n0\r\n\r\n".to_owned(), 400),
    ] {
        let upstreams = [Service::new(), Service::new()];
        let [one, two] = [&upstreams[0], &upstreams[1]].map(|upstream| upstream.address);
        let program = Program::start(&format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\nworkers = 1\nupstreams = [\"http://{one}\", \"http://{two}\"]\n{}",
            route("max_body = 10")
        ));
        // An idle connection to each.
        let mut client = program.client();
        assert_eq!([client.get("/1").status(), client.get("/2").status()], [200, 200]);
        // The head and the body at once.
        client.send(format!("POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        assert_eq!(told(&program, &client.read()).0, status, "{body:?}");
        let mut client = program.client();
        assert_eq!([client.get("/4").status(), client.get("/5").status()], [200, 200]);
        let seen = upstreams.iter().flat_map(Service::seen);
        assert!(!seen.into_iter().any(|first| first.starts_with("POST")), "{body:?}");
    }
}
