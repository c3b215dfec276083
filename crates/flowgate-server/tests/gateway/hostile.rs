//! W3: upstreams that say what they should not. Whatever it is, its client gets a 502 or a body that is visibly cut, nobody
//! else gets any of it, and the slot is free afterwards.

use crate::{
    client::{Client, Message},
    program::Program,
    upstream::{OK, OK_AND_ON, Upstream},
};

const HEAD: &str = "HTTP/1.1 200 OK\r\n";

/// A gateway with one slot and one worker: a slot that is lost, or a connection that is wrongly kept, meets the next request.
struct Stage {
    upstream: Upstream,
    program: Program,
}

impl Stage {
    fn new() -> Self {
        let upstream = Upstream::new();
        let route = "[[gateway.route]]\nname = \"actions\"\npath = \"/{*rest}\"\nmax = 1\n";
        let program = Program::before(upstream.address, "workers = 1", route);
        Stage { upstream, program }
    }

    /// A request that has reached its upstream.
    fn ask(&self, method: &str) -> (Client, Client) {
        let mut client = self.program.client();
        client.ask(method, "/asked", "");
        let (asked, request) = self.upstream.take();
        assert_eq!(request.first, format!("{method} /asked HTTP/1.1"));
        (client, asked)
    }

    /// The next request is served, by a connection of its own, with its own answer.
    fn is_well(&self, what: &str) {
        self.program.settle(0, 0);
        let mut client = self.program.client();
        client.ask("POST", "/next", "");
        let (mut asked, request) = self.upstream.take();
        assert_eq!(request.first, "POST /next HTTP/1.1", "{what}");
        asked.send(OK);
        let answer = client.read();
        assert_eq!((answer.status(), answer.text()), (200, "ok"), "{what}");
        self.program.settle(0, 0);
    }
}

fn is_failure(answer: &Message) -> bool {
    answer.status() == 502 && answer.code() == "PLATFORM.UPSTREAM_FAILED"
}

/// What comes after the head, until the connection ends: a body that is no whole one.
fn cut_body(client: &mut Client, what: &str) -> String {
    let rest = client.rest();
    assert!(!rest.ends_with("0\r\n\r\n"), "{what}: taken for whole: {rest:?}");
    assert!(!rest.contains("HTTP/1.1"), "{what}: another answer: {rest:?}");
    rest
}

#[test]
fn w3_a_head_that_is_none_is_502_at_once_and_the_upstream_is_hung_up_on() {
    // Seen to fail: with interim answers not counted; with `Malformed` taken for a head that is not all there yet.
    let stage = Stage::new();
    let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1_000);
    let many = format!("{HEAD}{}\r\n", "X: y\r\n".repeat(200));
    let long = format!("{HEAD}X: {}", "x".repeat(70_000));
    for said in [
        "no such protocol\r\n\r\n",
        "HTTP/1.1 2xx OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 -20 OK\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/0.9 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "ok\r\n\r\n",
        "HTTP/1.1 200 O\u{1}K\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\u{0}: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\u{0}b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: 1\r\n\tfolded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\nhello",
        &interim,
        &many,
        &long,
    ] {
        let what = said.get(..80).unwrap_or(said);
        let (mut client, mut asked) = stage.ask("POST");
        // It may be hung up on in the middle.
        asked.try_send(said);
        let answer = client.read();
        assert!(is_failure(&answer), "{what:?}: {answer:?}");
        assert!(asked.ends(), "{what:?}: the upstream is hung up on");
        stage.is_well(what);
    }
}

#[test]
fn w3_interim_answers_are_no_answers() {
    // Seen to fail: with the first of them taken for the answer.
    let stage = Stage::new();
    let (mut client, mut asked) = stage.ask("POST");
    asked.send(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 5\r\n\r\n",
    );
    asked.send(OK);
    let answer = client.read();
    assert_eq!((answer.status(), answer.text(), answer.header("link")), (200, "ok", None));
    stage.is_well("interim answers");
}

#[test]
fn w3_wherever_an_answer_breaks_off_it_is_not_taken_for_whole() {
    // Seen to fail: with the end of the connection taken for the end of a body.
    let stage = Stage::new();
    for (head, body) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\nX-Sum: 1\r\n\r\n",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello"),
    ] {
        let whole = format!("{head}{body}");
        for end in 0..whole.len() {
            let what = format!("{:?}", &whole[..end]);
            let (mut client, mut asked) = stage.ask("POST");
            asked.send(&whole[..end]);
            drop(asked);
            let answer = client.read_head();
            if end < head.len() {
                assert_eq!(answer.status(), 502, "{what}");
            } else {
                assert_eq!(answer.status(), 200, "{what}");
                let came = cut_body(&mut client, &what);
                assert!(body == "hello" || !came.contains("0\r\n"), "{what}: {came:?}");
                assert_ne!(came, "hello", "{what}");
            }
            stage.program.settle(0, 0);
        }
        stage.is_well(head);
    }
}

#[test]
fn w3_chunks_that_are_none_cut_the_body() {
    // Seen to fail: with a bare `\n` taken for the end of a line; with what came before the break lost with it.
    let stage = Stage::new();
    let long = "1".repeat(2_000);
    let trailers = format!("0\r\n{}", "X: y\r\n".repeat(10_000));
    for chunks in [
        "fffffffffffffffff\r\nhello",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "-1\r\nhello",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "5\r\nhell\r\n0\r\n\r\n",
        "5;\u{1}\r\nhello\r\n0\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nX : 1\r\n\r\n",
        "0\r\nX: 1\r\n folded\r\n\r\n",
        &long,
        &trailers,
    ] {
        let what = chunks.get(..80).unwrap_or(chunks);
        let (mut client, mut asked) = stage.ask("POST");
        // It may be hung up on in the middle.
        asked.try_send(format!(
            "{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunks}{HEAD}Content-Length: 8\r\n\r\nsmuggled"
        ));
        assert_eq!(client.read_head().status(), 200, "{what:?}");
        let came = cut_body(&mut client, what);
        assert!(!came.contains("smuggled"), "{what:?}: {came:?}");
        assert!(asked.ends(), "{what:?}: the upstream is hung up on");
        stage.is_well(what);
    }
}

#[test]
fn w3_of_two_lengths_of_an_answer_the_chunks_count_and_the_connection_is_not_kept() {
    // Seen to fail: with the connection kept.
    let stage = Stage::new();
    for lengths in [
        "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
    ] {
        let (mut client, mut asked) = stage.ask("POST");
        asked.send(format!("{HEAD}{lengths}\r\n2\r\nok\r\n0\r\n\r\n"));
        let answer = client.read();
        assert_eq!((answer.text(), answer.header("content-length")), ("ok", None), "{lengths:?}");
        stage.is_well(lengths);
        assert!(asked.ends(), "{lengths:?}");
    }
}

#[test]
fn w3_what_comes_behind_an_answer_is_nobodys() {
    // Seen to fail: with what was read beyond the body kept for the next one; with an idle connection not looked at.
    let more = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    for (method, first, status) in [
        ("POST", OK_AND_ON, 200),
        ("POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 48\r\n\r\n", 200),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        ("POST", "HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("POST", "HTTP/1.1 204 No Content\r\nContent-Length: 48\r\n\r\n", 204),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 48\r\n\r\n", 304),
        ("GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304),
    ] {
        for is_at_once in [true, false] {
            let what = format!("{method} {first:?}, at once: {is_at_once}");
            let stage = Stage::new();
            let (mut client, mut asked) = stage.ask(method);
            if is_at_once {
                asked.send(format!("{first}{more}"));
            } else {
                asked.send(first);
            }
            let is_bodiless = method == "HEAD" || status != 200;
            let answer = if is_bodiless { client.read_head() } else { client.read() };
            assert_eq!(answer.status(), status, "{what}");
            assert!(is_bodiless || answer.text() == "ok", "{what}: {answer:?}");
            if !is_at_once {
                // The connection may be idle by now, or not yet.
                asked.send(more);
            }
            stage.is_well(&what);
            // The client's connection has nothing of it either, and goes on.
            client.ask("POST", "/again", "");
            let (mut asked, _) = stage.upstream.take();
            asked.send(OK);
            assert_eq!(client.read().text(), "ok", "{what}");
        }
    }
}

#[test]
fn w3_an_upstream_that_speaks_before_it_is_asked_is_not_heard() {
    // Seen to fail: with an idle connection not looked at before it is used.
    let stage = Stage::new();
    let mut client = stage.program.client();
    client.ask("POST", "/a", "");
    let (mut asked, _) = stage.upstream.take();
    asked.send(OK_AND_ON);
    assert_eq!(client.read().status(), 200);
    asked.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.ask("POST", "/b", "");
    let (mut asked, request) = stage.upstream.take();
    assert_eq!(request.first, "POST /b HTTP/1.1", "on a new connection");
    asked.send(OK);
    assert_eq!(client.read().text(), "ok");
}
