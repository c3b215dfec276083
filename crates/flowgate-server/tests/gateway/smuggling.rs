//! W3: what two servers could read differently is not sent on.

use crate::{
    program::Program,
    upstream::{OK, Upstream},
};

#[test]
fn w3_requests_that_could_be_read_in_two_ways_are_400() {
    // Seen to fail: with two `Host` lines let through; with the header not looked at where the target names a host; with a target
    // that is no path sent on as `/`.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", "");
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\na",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:80:90\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET http://user:word@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\u{0}: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX y: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\t: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\nhello",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = program.client();
        client.send(request);
        assert_eq!(client.read().status(), 400, "{request:?}");
        assert!(upstream.is_quiet(), "{request:?}");
    }
}

#[test]
fn w3_whatever_form_a_request_has_its_upstream_gets_one_that_is_plain() {
    // Seen to fail: of HTTP/1.0 without a host, none was sent on; of a URL with a query and no path, the query alone; with twins
    // not taken out, what a stranger said of its own address was sent on.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", "");
    let of = |host: &str| {
        format!("x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: {host}\r\n")
    };
    let bare =
        format!("x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nhost: {}\r\n", upstream.address);
    for (request, target, headers) in [
        ("GET /a HTTP/1.0\r\n\r\n", "/a", bare.clone()),
        ("GET /a HTTP/1.0\r\nX-Forwarded-Host: evil\r\n\r\n", "/a", bare),
        ("GET /a HTTP/1.0\r\nHost: b\r\n\r\n", "/a", format!("host: b\r\n{}", of("b"))),
        ("GET http://b/a HTTP/1.0\r\n\r\n", "/a", format!("host: b\r\n{}", of("b"))),
        ("GET http://b:8/a HTTP/1.1\r\nHost: c\r\n\r\n", "/a", format!("host: b:8\r\n{}", of("b:8"))),
        ("GET http://b?x=1 HTTP/1.1\r\nHost: b\r\n\r\n", "/?x=1", format!("host: b\r\n{}", of("b"))),
        ("GET http://b HTTP/1.1\r\nHost: b\r\n\r\n", "/", format!("host: b\r\n{}", of("b"))),
        ("\r\nGET /a HTTP/1.1\nHost: b\n\n", "/a", format!("host: b\r\n{}", of("b"))),
        (
            "GET /a HTTP/1.1\r\nHost: b\r\nX_Forwarded_For: 6.6.6.6\r\nTransfer_Encoding: chunked\r\nX_Y: z\r\n\r\n",
            "/a",
            format!("host: b\r\nx_y: z\r\n{}", of("b")),
        ),
        (
            "GET /a HTTP/1.1\r\nHost: b\r\nConnection: host, x-mine\r\nX-Mine: 1\r\n\r\n",
            "/a",
            format!("host: b\r\n{}", of("b")),
        ),
    ] {
        let mut client = program.client();
        client.send(request);
        let mut asked = upstream.accept();
        assert_eq!(asked.raw_head(), format!("GET {target} HTTP/1.1\r\n{headers}\r\n"), "{request:?}");
        asked.send(OK);
        assert_eq!(client.read().text(), "ok", "{request:?}");
    }
}

#[test]
fn w3_extensions_of_chunks_and_two_equal_lengths_end_here() {
    // Seen to fail: with every body said to come in chunks, one had a length as well.
    for (body, framing, told) in [
        (
            "5;ext=\"a;b\"\r\nhello\r\n0;last\r\n\r\n",
            "Transfer-Encoding: chunked",
            "transfer-encoding: chunked",
        ),
        ("hello", "Content-Length: 5\r\nContent-Length: 5", "content-length: 5"),
    ] {
        let upstream = Upstream::new();
        let program = Program::before(upstream.address, "", "");
        let mut client = program.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{body}"));
        let mut asked = upstream.accept();
        let head = asked.raw_head();
        assert!(
            head.contains(&format!("\r\n{told}\r\n"))
                && head.matches("encoding").count() + head.matches("length").count() == 1,
            "{head}"
        );
        let sent = if told.starts_with('t') { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" };
        assert_eq!(asked.exactly(sent.len()), sent.as_bytes());
        asked.send(OK);
        assert_eq!(client.read().text(), "ok");
    }
}

#[test]
fn w3_a_head_that_is_too_large_is_431_and_reaches_nobody() {
    // Seen to fail: with a bound of a megabyte, it was sent on.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", "");
    for head in [
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000)),
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(70_000)),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(150)),
    ] {
        let mut client = program.client();
        // A long one may be hung up on in the middle.
        let is_short = head.len() < 64 * 1024;
        client.try_send(head);
        let status = client.try_read_head().map(|answer| answer.status());
        assert!(status.map_or(!is_short, |status| status == 431), "{status:?}");
        assert!(upstream.is_quiet());
    }
}

#[test]
fn w3_a_body_that_is_badly_chunked_is_400_and_ends_its_connection() {
    // Seen to fail: with the broken body taken for its end.
    for chunks in [
        "zz\r\nab\r\n",
        "2\r\nabc\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "2;\u{1}\nab",
        "fffffffffffffffff\r\n",
        "2\nab\r\n",
        "2;\rx\r\nab\r\n",
        "2\rab\r\n",
        "2\r\nab\n0\r\n\r\n",
        "0x2\r\nab\r\n",
        " 2\r\nab\r\n",
        "\r\n2\r\nab\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\n\n",
    ] {
        let upstream = Upstream::new();
        let program = Program::before(upstream.address, "", "");
        let mut client = program.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
        let mut asked = upstream.accept();
        assert_eq!(client.try_read().map(|answer| answer.status()), Some(400), "{chunks:?}");
        assert!(client.ends(), "{chunks:?}");
        assert!(!asked.rest().ends_with("0\r\n\r\n"), "the upstream hears no end of it: {chunks:?}");
    }
}

#[test]
fn w3_of_two_lengths_the_chunks_count_and_nothing_is_read_after_them() {
    // Seen to fail: with a length sent beside the chunks.
    for lengths in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ] {
        let upstream = Upstream::new();
        let program = Program::before(upstream.address, "", "");
        let mut client = program.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{lengths}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let (mut asked, request) = upstream.take();
        assert_eq!(request.header("content-length"), None, "{lengths:?}");
        assert_eq!((request.header("transfer-encoding"), request.text()), (Some("chunked"), ""));
        asked.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let answer = client.read();
        assert_eq!((answer.status(), answer.header("connection")), (200, Some("close")));
        assert!(client.ends(), "what came behind it is not read");
        assert!(upstream.is_quiet());
    }
}

#[test]
fn w3_a_body_in_another_coding_than_chunks_is_501() {
    // Seen to fail: with `gzip, chunked` sent on as `chunked`, its coding lost.
    let upstream = Upstream::new();
    let program = Program::before(upstream.address, "", "");
    for codings in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let mut client = program.client();
        client.ask("POST", "/", codings);
        client.send("0\r\n\r\n");
        let answer = client.read();
        assert_eq!(
            (answer.status(), answer.code().as_str()),
            (501, "PLATFORM.NOT_IMPLEMENTED"),
            "{codings:?}"
        );
        assert!(upstream.is_quiet(), "{codings:?}");
    }
    for coding in ["chunked", "Chunked"] {
        let mut client = program.client();
        client.ask("POST", "/", &format!("Transfer-Encoding: {coding}\r\n"));
        client.send("2\r\nok\r\n0\r\n\r\n");
        let (mut asked, request) = upstream.take();
        asked.send(OK);
        assert_eq!((client.read().status(), request.text()), (200, "ok"), "{coding}");
    }
}
